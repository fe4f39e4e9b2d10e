//! Tensor maps: what they may say, and their encoding.

use ptx_emulator::TensorMap;
use ptx_emulator::tensor_map::{Axis, Element, Fill, Interleave, L2Promotion, Swizzle, TensorMapError};

fn good() -> TensorMap {
    let axis = |size, stride, box_size, step| Axis {
        size,
        stride,
        box_size,
        step,
    };
    TensorMap {
        element: Element::Bf16,
        address: 0x2_0000_0010,
        axes: vec![
            axis(1 << 32, 2, 64, 1),
            axis(3, 1 << 33, 256, 8),
            axis(1, (1 << 40) - 16, 1, 1),
        ],
        interleave: Interleave::None,
        swizzle: Swizzle::Bytes128,
        l2_promotion: L2Promotion::Bytes64,
        fill: Fill::Nan,
    }
}

#[test]
fn maps_come_back_as_they_were() {
    let mut maps = vec![good()];
    for &element in Element::ALL {
        for (&interleave, &swizzle) in Interleave::ALL
            .iter()
            .zip([Swizzle::None, Swizzle::Bytes64, Swizzle::Bytes32].iter())
        {
            for &l2_promotion in L2Promotion::ALL {
                let mut map = good();
                map.address = 0x3_0000_0020;
                map.axes[0].size = 48 / element.bytes();
                map.axes[0].stride = element.bytes();
                map.axes[0].box_size = (32 / element.bytes()) as u32;
                map.axes[1].stride = 1 << 33;
                map.axes[2].stride = 1 << 36;
                (map.element, map.interleave, map.swizzle, map.l2_promotion) =
                    (element, interleave, swizzle, l2_promotion);
                map.fill = if element.is_float() { Fill::Nan } else { Fill::Zero };
                maps.push(map);
            }
        }
    }
    for map in maps {
        let bytes = map.encode().unwrap_or_else(|error| panic!("{map:?}: {error}"));
        assert_eq!(TensorMap::decode(&bytes), Ok(map));
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let bytes = good().encode().unwrap();
    for bit in 0..8 * bytes.len() {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(TensorMap::decode(&changed), Err(TensorMapError::Foreign), "bit {bit}");
    }
}

#[test]
fn maps_that_cannot_be() {
    type Change = fn(&mut TensorMap);
    let cases: &[(&str, Change)] = &[
        ("0 axes; 1 to 5", |m| m.axes.clear()),
        ("6 axes; 1 to 5", |m| m.axes = vec![m.axes[0]; 6]),
        ("2 axes; 3 to 5", |m| {
            m.interleave = Interleave::Bytes16;
            m.axes.pop();
        }),
        ("address 0x200000008 is not a multiple of 16", |m| {
            m.address = 0x2_0000_0008
        }),
        ("address 0x200000010 is not a multiple of 32", |m| {
            m.interleave = Interleave::Bytes32
        }),
        ("axis 1: a size of 0", |m| m.axes[1].size = 0),
        ("axis 0: a size of 4294967297", |m| m.axes[0].size += 1),
        ("axis 0: a stride of 4", |m| m.axes[0].stride = 4),
        ("axis 1: a stride of 8589934600; multiples of 16", |m| {
            m.axes[1].stride += 8
        }),
        (
            "axis 1: a stride of 8589934576; the axes before it span 8589934592",
            |m| m.axes[1].stride -= 16,
        ),
        (
            "axis 2: a stride of 17179869184; the axes before it span 25769803776",
            |m| m.axes[2].stride = 1 << 34,
        ),
        ("axis 2: a stride of 1099511627776; multiples of 16 below 2^40", |m| {
            m.axes[2].stride += 16
        }),
        ("axis 2: a box of 0", |m| m.axes[2].box_size = 0),
        ("axis 1: a box of 257", |m| m.axes[1].box_size += 1),
        ("axis 1: a step of 9", |m| m.axes[1].step += 1),
        ("axis 2: a step of 0", |m| m.axes[2].step = 0),
        ("axis 0: a step of 0", |m| {
            m.address = 0x2_0000_0000;
            m.interleave = Interleave::Bytes16;
            m.axes[0].step = 0;
        }),
        ("axis 0: a box, in bytes, of 144; multiples of 16 up to 128", |m| {
            m.axes[0].box_size = 72
        }),
        ("axis 0: a box, in bytes, of 120", |m| m.axes[0].box_size = 60),
        ("slices of 32 bytes go with a swizzle within 32 bytes", |m| {
            m.address = 0x2_0000_0020;
            m.axes[2].stride -= 16;
            m.interleave = Interleave::Bytes32;
        }),
        ("only tensors of a floating-point type", |m| m.element = Element::U16),
    ];
    for (says, change) in cases {
        let mut map = good();
        change(&mut map);
        let error = map.encode().expect_err(says).to_string();
        assert!(error.contains(says), "`{says}` is not in: {error}");
    }
}
