use super::*;
use crate::Error;
use crate::formats::window12::pack;
use proptest::prelude::*;

/// Weights of many exponents, so that packed ones have exceptions.
fn values(shape: Shape) -> Vec<bf16> {
    let bits = |i: usize| (i as u16).wrapping_mul(40_503) & 0xbf8f;
    (0..shape.n() * shape.k()).map(|i| bf16::from_bits(bits(i))).collect()
}

#[test]
fn values_in_memory_are_borrowed() {
    let shape = Shape::new(3, 5).unwrap();
    let values = values(shape);
    let weights = Weights::bf16(&values, shape).unwrap();
    assert_eq!(weights.shape().unwrap(), shape);
    let all = weights.to_bf16(None).unwrap();
    assert!(matches!(all, Cow::Borrowed(_)) && *all == *values);
    let rows = weights.clone().slice(Some(1..3), None).unwrap();
    let rows = rows.to_bf16(None).unwrap();
    assert!(matches!(rows, Cow::Borrowed(_)) && *rows == values[5..]);
    let columns = weights.slice(None, Some(4..5)).unwrap();
    assert_eq!(*columns.to_bf16(None).unwrap(), [values[4], values[9], values[14]]);
}

#[test]
fn bytes_may_start_anywhere() {
    let shape = Shape::new(2, 3).unwrap();
    let values = values(shape);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    for shift in 0..2 {
        let moved = [&vec![0; shift][..], &bytes].concat();
        let weights = Weights::bytes(&moved[shift..], Dtype::Bf16, shape).unwrap();
        assert_eq!(*weights.to_bf16(None).unwrap(), values);
    }
}

#[test]
fn lengths_and_types_are_checked() {
    let shape = Shape::new(2, 3).unwrap();
    let refused = Weights::bf16(&[bf16::ONE; 5], shape).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Length {
                given: 5,
                needed: 6,
                ..
            }
        ),
        "{refused}"
    );
    for (dtype, needed) in [(Dtype::Bf16, 12), (Dtype::F16, 12), (Dtype::F32, 24)] {
        let bytes = vec![0; needed + 1];
        assert!(matches!(
            Weights::bytes(&bytes, dtype, shape),
            Err(Error::Length { .. })
        ));
        let weights = Weights::bytes(&bytes[..needed], dtype, shape).unwrap();
        assert_eq!(*weights.to_bf16(Some(Cast::Bf16)).unwrap(), [bf16::ZERO; 6]);
        match (dtype, weights.to_bf16(None)) {
            (Dtype::Bf16, Ok(_)) | (Dtype::F32, Err(Error::Fp32Weights)) => {}
            (Dtype::F16, Err(Error::NeedsCast { given: Dtype::F16 })) => {}
            (_, other) => panic!("{dtype}: {other:?}"),
        }
    }
}

#[test]
fn packed_weights_stay_packed_where_units_end() {
    let shape = Shape::new(40, 200).unwrap();
    let packed = pack(&values(shape), shape).unwrap();
    let slice = |rows, cols| Weights::from(packed.clone()).slice(rows, cols);
    for (rows, cols) in [(None, None), (Some(16..40), None), (None, Some(64..200))] {
        assert!(matches!(slice(rows, cols), Ok(Weights::Window12(_))));
    }
    for (rows, cols) in [(Some(1..16), None), (None, Some(64..199)), (Some(0..16), Some(1..64))] {
        assert!(matches!(slice(rows, cols), Ok(Weights::Rows(_))));
    }
    // What is not there is told before it is asked where units end.
    let refused = slice(Some(1..2), Some(3..201)).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Slice {
                what: "columns",
                len: 200,
                ..
            }
        ),
        "{refused}"
    );
    let refused = slice(Some(1..1), None).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Slice {
                what: "rows",
                len: 40,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn a_slice_borrows_what_the_whole_borrows() {
    let shape = Shape::new(40, 200).unwrap();
    let packed = pack(&values(shape), shape).unwrap();
    let slice = Weights::from(packed.slice(None, None).unwrap()).slice(Some(16..40), None);
    let Ok(Weights::Window12(slice)) = slice else { panic!() };
    assert_eq!(slice, packed.slice(Some(16..40), None).unwrap());
    assert!(packed.units().as_ptr_range().contains(&slice.units().as_ptr()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn packed_and_plain_weights_have_the_same_slices(
        n in 1usize..60,
        k in 1usize..200,
        cuts in any::<[prop::sample::Index; 4]>(),
        aligned in any::<bool>(),
    ) {
        let shape = Shape::new(n, k).unwrap();
        let values = values(shape);
        let packed = pack(&values, shape).unwrap();
        let range = |len: usize, to: usize, a: &prop::sample::Index, b: &prop::sample::Index| {
            let bounds: Vec<usize> = (0..len).step_by(if aligned { to } else { 1 }).chain([len]).collect();
            let first = a.index(bounds.len() - 1);
            let last = first + 1 + b.index(bounds.len() - 1 - first);
            bounds[first]..bounds[last]
        };
        let (rows, cols) = (range(n, 16, &cuts[0], &cuts[1]), range(k, 64, &cuts[2], &cuts[3]));
        let [plain, packed] = [Weights::bf16(&values, shape).unwrap(), packed.into()]
            .map(|weights| weights.slice(Some(rows.clone()), Some(cols.clone())).unwrap());
        prop_assert_eq!(plain.shape().unwrap(), packed.shape().unwrap());
        let [plain, packed] = [&plain, &packed].map(|weights| weights.to_bf16(None).unwrap());
        prop_assert!(plain.iter().map(|v| v.to_bits()).eq(packed.iter().map(|v| v.to_bits())));
    }
}
