//! The tables keep their promises.

extern crate std;
use super::*;
use std::borrow::ToOwned as _;
use std::format;

/// The largest dynamic shared memory that a CTA may ask for on sm_90.
const MAX_SHARED: usize = 227 * 1024;

#[test]
fn a_name_spells_the_parameters() {
    for i in gemvs().chain(routes()) {
        let (w, c, s, g) = (i.warps, i.cluster, i.stages, i.groups);
        let (n, r, x) = (i.token_blocks, i.row_blocks, i.x_values);
        let op = match i.op {
            Op::Project => "gemv",
            Op::Route => "route",
        };
        let format = i.format.name();
        assert_eq!(i.name, format!("{op}_{format}_sm90_w{w}c{c}s{s}g{g}n{n}r{r}x{x}"));
    }
    for i in STREAM_READ {
        let (w, s, b) = (i.warps, i.stages, i.chunk_kib);
        assert_eq!(i.name, format!("stream_read_sm90_w{w}s{s}b{b}"));
    }
}

#[test]
fn a_product_spells_its_parameters() {
    for i in gemms() {
        let (w, s, g, n) = (i.warps, i.stages, i.groups, i.token_blocks);
        let op = match i.op {
            Op::Project => "gemm",
            Op::Route => "route",
        };
        let terms = ["bf16", "bf16x2", "bf16x3"][i.terms - 1];
        let format = match i.loads {
            Loads::Tma => terms.to_owned(),
            Loads::Masked => format!("{terms}_plain"),
            // Row-major weights have taken the name of their own format.
            Loads::Packed(format) if format.name() == terms => format!("{terms}_units"),
            Loads::Packed(format) => format.name().to_owned(),
        };
        let multicast = match i.multicast {
            1 => std::string::String::new(),
            h => format!("h{h}"),
        };
        assert_eq!(i.name, format!("{op}_{format}_sm90_w{w}s{s}g{g}n{n}{multicast}"));
    }
}

#[test]
fn boxes_and_barriers_of_a_product_fit() {
    for i in gemms() {
        assert!(
            i.x_box().iter().chain(&i.weight_box()).all(|&side| side <= 256),
            "{}",
            i.name
        );
        assert!(2 * i.stages * BARRIER_BYTES <= i.tile_offset(), "{}", i.name);
        assert_eq!(
            i.stage_bytes() % if i.loads.has_map_of_x() { 1024 } else { 16 },
            0,
            "{}",
            i.name
        );
    }
}

#[test]
fn parts_of_x_keep_the_pattern_of_the_swizzle() {
    for i in gemms() {
        assert!([1, 2, 4, 8].contains(&i.multicast), "{}", i.name);
        // The pattern repeats after eight rows.
        assert!(i.token_blocks.is_multiple_of(i.multicast), "{}", i.name);
        assert!(i.multicast == 1 || i.loads.has_map_of_x(), "{}", i.name);
    }
}

#[test]
fn every_cta_of_a_cluster_has_a_place_of_its_own() {
    for i in gemms() {
        for cluster in [1, 2, 4, 8] {
            let (members, parts) = (i.multicast as u32, i.parts(cluster) as u32);
            for rank in 0..parts * members {
                let (member, part) = i.place(rank);
                assert!(member < members && part < parts, "{}", i.name);
                assert_eq!(i.rank(member, part), rank, "{}", i.name);
            }
        }
        for n in [1, i.rows(), i.rows() + 1, 3 * i.rows()] {
            let tiles = i.row_tiles(n);
            assert!(tiles.is_multiple_of(i.multicast), "{}", i.name);
            assert!(
                (n.div_ceil(i.rows())..n.div_ceil(i.rows()) + i.multicast).contains(&tiles),
                "{}",
                i.name
            );
        }
    }
}

#[test]
fn sums_and_gate_of_a_product_fit_the_tiles_they_replace() {
    for i in gemms() {
        let room = i.shared_bytes() - i.tile_offset();
        assert!(
            i.partial_bytes() <= room && gate_bytes(MAX_EXPERTS) <= room,
            "{}",
            i.name
        );
    }
}

#[test]
fn every_instance_fits_an_sm() {
    for i in entries() {
        assert!(i.shared_bytes <= MAX_SHARED, "{}", i.name);
        assert!(i.min_ctas * (i.shared_bytes + 1024) <= 228 * 1024, "{}", i.name);
        // An SM is four partitions, each with a quarter of the registers and of the warps.
        let threads = (i.min_ctas * i.threads).next_multiple_of(4 * WARP);
        assert!(threads * i.max_registers <= 65_536, "{}", i.name);
    }
}

#[test]
fn partial_sums_fit_the_ring_they_replace() {
    for i in gemvs().chain(routes()) {
        assert!(i.tokens() * i.partial_stride() * 4 <= i.ring_bytes(), "{}", i.name);
    }
}

#[test]
fn a_gate_fits_the_rings_it_replaces() {
    for i in routes() {
        let room = i.warps * i.ring_bytes();
        assert!(gate_bytes(MAX_EXPERTS) <= room, "{}", i.name);
        // Every token of a CTA's share has a warp of its own, for routers of an ordinary size.
        assert!(i.share_tokens() * gate_bytes(GATE_TILE) <= room, "{}", i.name);
    }
}

#[test]
fn routers_of_a_format_split_k_alike() {
    for i in routes() {
        let first = &i.format.routes()[0];
        let split = |i: &Gemv| (i.warps, i.cluster, i.groups);
        assert_eq!(split(i), split(first), "{}", i.name);
    }
}

#[test]
fn names_are_unique() {
    for (at, i) in entries().enumerate() {
        assert!(entries().skip(at + 1).all(|other| other.name != i.name), "{}", i.name);
    }
}

#[test]
fn every_entry_has_its_place_in_its_family() {
    let mut all = 0;
    for family in Family::ALL {
        // Families that divide the kernels of one name say which part is theirs at the end.
        let name = family.name();
        let name = ["_many", "_gemm"]
            .iter()
            .find_map(|part| name.strip_suffix(part))
            .unwrap_or(name);
        for (at, entry) in family.entries().enumerate() {
            assert_eq!((entry.family, entry.index), (family, at), "{}", entry.name);
            assert!(entry.name.starts_with(name), "{}", entry.name);
            all += 1;
        }
    }
    assert_eq!(all, entries().count());
    let sizes = Family::ALL.map(|family| family.entries().count());
    assert_eq!(sizes, [17, 16, 10, 3, 6, 3, 5, 4, 3, 4, 3, 4, 3, 2]);
}

#[test]
fn every_matrix_product_has_a_number_of_its_own() {
    assert!(gemms().map(|i| i.number).eq(0..gemms().count()));
    assert!(gemms().count() <= u64::BITS as usize);
}
