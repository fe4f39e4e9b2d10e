//! A table of one's own, which a process takes once. One test, so that nothing else plans in its process.

use hopper_proj::instances::Format;
use hopper_proj::plan::measured::{Table, built_in, own, use_environment, use_table};
use hopper_proj::plan::{Device, Kernel};
use hopper_proj::{Error, Op, Request, Shape, plan};

#[test]
fn the_first_table_goes_before_the_librarys_own() {
    let request = Request::new(Op::Project, Format::Bf16, Shape::new(2304, 8192).unwrap(), 8);
    let chosen = |request: &Request| match plan(request, &Device::H200).unwrap().unwrap().kernel {
        Kernel::Gemv(instance) => instance,
        other => panic!("{other}"),
    };
    let before = chosen(&request);
    let listed = |kernel: &Kernel| *kernel == Kernel::Gemv(before);
    assert!(own().is_none());
    assert!(built_in().rows().iter().any(|row| listed(&row.kernel)));

    let other = Format::Bf16
        .gemvs()
        .iter()
        .find(|i| i.tokens() == before.tokens() && *i != before);
    let other = other.unwrap();
    let mut row = built_in()
        .rows()
        .iter()
        .find(|row| listed(&row.kernel))
        .unwrap()
        .clone();
    (row.kernel, row.us) = (Kernel::Gemv(other), Some(1.5));
    use_table(Table::new(vec![row.clone()])).unwrap();
    assert_eq!(chosen(&request), other);
    assert_eq!(own().unwrap().rows(), [row]);
    // Shapes that it does not have are planned as before.
    let elsewhere = Request::new(Op::Project, Format::Bf16, Shape::new(8192, 1024).unwrap(), 8);
    let rows = built_in().rows().iter();
    let expected = rows.filter(|row| (row.format, row.shape, row.m) == (Format::Bf16, elsewhere.shape, 8));
    assert_eq!(
        chosen(&elsewhere).name,
        expected.map(|row| row.kernel.name()).next().unwrap()
    );

    assert!(matches!(use_table(Table::default()), Err(Error::SecondTable)));
    use_environment().unwrap();
    assert_eq!(
        chosen(&request),
        other,
        "a table that was passed stands, whatever a variable names"
    );
}
