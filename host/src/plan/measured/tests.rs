use super::*;
use crate::instances::{GEMM, Loads, gemms, gemvs, packed_gemms, routes};
use crate::plan::{Device, Division, Verdict, plan, plan_with};
use proptest::prelude::*;

const COLUMNS: &str = "gpu,date,source,op,format,n,k,m,instance,cluster,slices,us";
const EIGHT: &str = "gemv_bf16_sm90_w4c1s2g1n1r2x8";
const OTHER_EIGHT: &str = "gemv_bf16_sm90_w4c2s2g1n1r2x8";
const SIXTEEN: &str = "gemv_bf16_sm90_w4c1s2g1n2r4x8";

fn table(rows: &[&str]) -> Result<Table> {
    Table::parse("mine", &format!("{COLUMNS}\n{}\n", rows.join("\n")))
}

fn row(m: usize, instance: &str, us: &str) -> String {
    format!("H200,2027-01-02,tune,project,bf16,512,640,{m},{instance},,,{us}")
}

fn request(m: usize, x: u64) -> Request {
    Request::new(Op::Project, Format::Bf16, Shape::new(512, 640).unwrap(), m).x(x, 640)
}

/// The first row that counts and whose kernel can and should serve the request.
fn first<'a>(table: &'a Table, request: &Request) -> Option<&'a Measurement> {
    let device = &Device::H200;
    let case = crate::plan::Case::new(request, device, Tables::current());
    let usable = |row: &&Measurement| matches!(case.verdict(&row.kernel), Verdict::Cost(_));
    table.rows_for(request).find(usable)
}

fn chosen(table: &Table, m: usize) -> Option<&'static str> {
    first(table, &request(m, 0)).map(|row| row.kernel.name())
}

#[test]
fn the_library_has_its_own() {
    let text = include_str!("built_in.csv");
    let table = Table::parse("built_in.csv", text).unwrap();
    assert_eq!(&table, built_in());
    assert!(table.rows().len() >= 30);
    let shown = table.to_string();
    assert_eq!(Table::parse("itself", &shown).unwrap(), table);
}

#[test]
fn the_fastest_of_the_next_tokens_is_taken_and_what_nobody_timed_comes_last() {
    let rows = [
        row(16, SIXTEEN, "3"),
        row(8, EIGHT, ""),
        row(8, OTHER_EIGHT, "2.5"),
        row(8, EIGHT, "2.75"),
    ];
    let table = table(&rows.each_ref().map(String::as_str)).unwrap();
    for (m, name) in [(1, OTHER_EIGHT), (8, OTHER_EIGHT), (9, SIXTEEN), (16, SIXTEEN)] {
        assert_eq!(chosen(&table, m), Some(name), "{m}");
    }
    // A walk over many tokens wants the largest instance, which nobody has timed.
    assert_eq!(chosen(&table, 17), None);
    // Rows of x that wide loads cannot take, and other shapes and formats, have no rows.
    assert_eq!(first(&table, &request(8, 2)), None);
    let other = Request {
        format: Format::Window12,
        ..request(8, 0)
    };
    assert_eq!(first(&table, &other), None);
    let only_proposed = self::table(&[&row(8, EIGHT, "")]).unwrap();
    assert_eq!(chosen(&only_proposed, 8), Some(EIGHT));
}

/// A product for many tokens says nothing of a few, for which there are kernels of another kind.
#[test]
fn rows_for_many_tokens_do_not_count_for_few() {
    let product = packed_gemms().find(|i| i.loads == Loads::Packed(Format::Bf16)).unwrap();
    let row = |m: usize, us: &str| {
        let start = format!("H200,2027-01-02,tune,project,bf16,512,640,{m}");
        format!("{start},{},{},1,{us}", product.name, product.multicast)
    };
    let table = self::table(&[&row(256, "5"), &row(16, "7")]).unwrap();
    for (m, found) in [
        (1, Some(16)),
        (16, Some(16)),
        (17, None),
        (32, None),
        (33, Some(256)),
        (256, Some(256)),
    ] {
        assert_eq!(first(&table, &request(m, 0)).map(|row| row.m), found, "{m} tokens");
    }
}

#[test]
fn a_walk_takes_the_largest_measured() {
    let walks = "gemv_bf16_sm90_w4c1s2g1n4r4x8";
    let table = table(&[&row(32, walks, "4"), &row(8, EIGHT, "1")]).unwrap();
    let walk = request(1000, 2);
    assert_eq!(table.rows_for(&walk).next().unwrap().kernel.name(), walks);
    // A product serves them all at once, where it can.
    assert_eq!(chosen(&table, 1000), None);
}

#[test]
fn bad_rows_are_named_by_their_line() {
    let good = row(8, EIGHT, "1");
    let with = |at: usize, value: &str| {
        let mut fields: Vec<&str> = good.split(',').collect();
        fields[at] = value;
        fields.join(",")
    };
    for (bad, words) in [
        (with(0, ""), "where it comes from"),
        (with(1, "yesterday"), "YYYY-MM-DD"),
        (with(3, "multiply"), "one of: project, route"),
        (with(4, "fp8"), "one of: bf16, bf16x2, bf16x3, window12"),
        (with(5, "0"), "whole number from 1"),
        (with(5, "4294967296"), "each side must lie between"),
        (with(6, "99999999999999999999999999"), "whole number from 1"),
        (with(7, "-1"), "whole number from 1"),
        (with(8, "gemv_bf16_sm90_w5"), "no kernel of this build"),
        (
            with(8, "gemv_window12_sm90_w4c1s3g1n1r2x8"),
            "does not serve `project` with bf16",
        ),
        (
            with(8, "route_bf16_sm90_w4s6g1n8"),
            "does not serve `project` with bf16",
        ),
        (with(9, "2"), "leave both empty"),
        (with(11, "0"), "microseconds"),
        (with(11, "NaN"), "microseconds"),
        (with(11, "inf"), "microseconds"),
        (with(11, "fast"), "microseconds"),
        (format!("{good},"), "13 fields"),
        ("one field".to_owned(), "1 fields"),
        ("\u{202e}\u{7}".repeat(1000), "1 fields"),
    ] {
        let message = table(&["# a note", "", &good, &bad]).unwrap_err().to_string();
        assert!(
            message.starts_with("mine, line 5: ") && message.contains(words),
            "{message}"
        );
        assert!(message.len() < 700, "{message}");
    }
    for empty in ["", "# a note\n\n", "gpu,date\n"] {
        let message = Table::parse("mine", empty).unwrap_err().to_string();
        assert!(message.contains(COLUMNS), "{message}");
    }
}

#[test]
fn products_are_rows_with_their_division() {
    let name = GEMM.iter().find(|i| i.op == Op::Route && i.terms == 2).unwrap().name;
    let row = |rest: &str| format!("H200,2027-01-02,tune,route,bf16x2,256,8192,128,{rest}");
    let table = table(&[&row(&format!("{name},2,6,7.5"))]).unwrap();
    let Kernel::Gemm(division) = table.rows()[0].kernel else {
        panic!("{table:?}")
    };
    assert_eq!(
        (division.instance.name, division.cluster, division.slices),
        (name, 2, 6)
    );
    assert_eq!(Table::parse("itself", &table.to_string()).unwrap(), table);
    let packed = packed_gemms()
        .find(|i| i.loads == Loads::Packed(Format::Window12))
        .unwrap()
        .name;
    let row_of = |format: &str| format!("H200,2027-01-02,tune,project,{format},256,8192,128,{packed},1,1,7.5");
    assert_eq!(
        self::table(&[&row_of("window12")]).unwrap().rows()[0].kernel.name(),
        packed
    );
    let message = self::table(&[&row_of("bf16")]).unwrap_err().to_string();
    assert!(message.contains("does not serve `project` with bf16"), "{message}");
    for (division, words) in [
        (",,1", "`cluster`"),
        ("3,1,1", "one of [1, 2, 4, 8]"),
        ("0,1,1", "one of [1, 2, 4, 8]"),
        ("many,1,1", "`cluster` is `many`; for"),
        ("1,0,1", "`slices`"),
        ("1,17,1", "`slices`"),
    ] {
        let message = self::table(&[&row(&format!("{name},{division}"))])
            .unwrap_err()
            .to_string();
        assert!(message.contains(words), "{message}");
    }
    let sharing = packed_gemms().find(|i| i.multicast == 4).unwrap();
    let format = match sharing.loads {
        Loads::Packed(Format::Window12) => "window12",
        _ => "bf16",
    };
    let row = |cluster| {
        format!(
            "H200,2027-01-02,tune,project,{format},256,8192,256,{},{cluster},1,7.5",
            sharing.name
        )
    };
    assert_eq!(self::table(&[&row(8)]).unwrap().rows()[0].kernel.cluster(), 8);
    let message = self::table(&[&row(2)]).unwrap_err().to_string();
    assert!(message.contains("one of [4, 8]"), "{message}");
}

#[test]
fn files_that_cannot_be_read_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    let message = Table::read(&path).unwrap_err().to_string();
    assert!(message.contains("table.csv"), "{message}");
    std::fs::write(&path, b"gpu\n\xff\n").unwrap();
    let message = Table::read(&path).unwrap_err().to_string();
    assert!(message.contains("line 2") && message.contains("UTF-8"), "{message}");
    std::fs::File::create(&path).unwrap().set_len(LONGEST + 1).unwrap();
    let message = Table::read(&path).unwrap_err().to_string();
    assert!(message.contains("longer than"), "{message}");
    std::fs::write(&path, built_in().to_string()).unwrap();
    assert_eq!(&Table::read(&path).unwrap(), built_in());
}

/// Names with what a field cannot hold are written without it.
#[test]
fn what_is_written_can_be_read() {
    let mut row = built_in().rows()[0].clone();
    (row.gpu, row.source) = ("# A, GPU\n".to_owned(), ",".to_owned());
    let text = Table::new(vec![row]).to_string();
    let read = Table::parse("itself", &text).unwrap();
    assert_eq!(
        (read.rows()[0].gpu.as_str(), read.rows()[0].source.as_str()),
        ("A GPU", "unknown")
    );
    for (us, written) in [
        (1e-9, Some(0.001)),
        (f64::INFINITY, None),
        (f64::NAN, None),
        (-1.0, None),
    ] {
        let us = Some(us);
        let row = Measurement {
            us,
            ..built_in().rows()[0].clone()
        };
        let read = Table::parse("itself", &Table::new(vec![row]).to_string()).unwrap();
        assert_eq!(read.rows()[0].us, written);
    }
}

/// A few, or more than one launch of every kernel can address.
fn tokens() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..300, 1usize..40_000_000]
}

proptest! {
    #[test]
    fn no_text_does_harm(text in "\\PC*", rows in prop::collection::vec("[a-z0-9_.,#\\n-]{0,80}", 0..20)) {
        let _ = Table::parse("it", &text);
        let _ = table(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Whatever a table says, what is planned is legal.
    #[test]
    fn any_row_gives_a_legal_plan(
        at in 0usize..200, row_m in tokens(), m in tokens(), x in 0u64..32, cluster in 0usize..4, slices in 1usize..=16, row_major: bool
    ) {
        let shape = Shape::new(512, 640).unwrap();
        let few = gemvs().chain(routes()).map(Kernel::Gemv);
        let many = gemms().map(|instance| Kernel::Gemm(Division { instance, cluster: (1 << cluster).max(instance.multicast), slices }));
        let kernels: Vec<_> = few.chain(many).collect();
        let kernel = kernels[at % kernels.len()];
        let (op, format) = (kernel.op(), kernel.format());
        let row = Measurement { op, format, shape, m: row_m, kernel, ..built_in().rows()[0].clone() };
        let request = Request::new(op, format, shape, m).x(x, 640).row_major(row_major);
        let table = Table::new(vec![row]);
        if let Some(row) = first(&table, &request) {
            prop_assert!(plan_with(&row.kernel, &request, &Device::H200).unwrap().is_some());
        }
        match plan(&request, &Device::H200) {
            Ok(plan) => prop_assert!(plan.is_some()),
            // A walk takes the least of all kernels at a time.
            Err(err) => prop_assert!(matches!(err, Error::Grid { .. }) && m > 65_535 * 32, "{err}"),
        }
    }
}
