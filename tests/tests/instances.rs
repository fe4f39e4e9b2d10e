//! Every instance against FP64, at its own edges.

use hopper_proj::bf16;
use hopper_proj::instances::{Format, Gemv, gemvs};
use hopper_proj_tests::{Device, Values, bits, check, lead, shape};
use std::collections::BTreeSet;

/// Sides of W around every edge of the layout, and one beyond.
const SIDES: [usize; 8] = [1, 7, 16, 17, 63, 64, 65, 1000];
/// The same for K where x is loaded in pieces of eight.
const WIDE_K: [usize; 6] = [8, 16, 24, 64, 72, 1000];
/// Tokens run from 0 to here: one more than the largest tile.
const MOST_TOKENS: usize = 33;
/// Weights from which on a case gets one tile of tokens, full, and no more: time.
const LARGE: usize = 1000 * 1000;

/// Every N with every K, and every m with some of them, dealt out so that no instance gets the same combinations as
/// another.
fn cases(at: usize, instance: &Gemv) -> Vec<(usize, usize, usize)> {
    let columns = if instance.x_values == 8 { &WIDE_K[..] } else { &SIDES };
    let pairs = SIDES.iter().flat_map(|&n| columns.iter().map(move |&k| (n, k)));
    // A step that has no factor in common with the 34 numbers of tokens visits them all.
    let mut tokens = (0..).map(|i| (at * 7 + i * 5) % (MOST_TOKENS + 1));
    pairs
        .map(|(n, k)| {
            let m = if n * k >= LARGE {
                Some(instance.tokens())
            } else {
                tokens.next()
            };
            (n, k, m.unwrap_or_default())
        })
        .collect()
}

#[test]
fn the_cases_cover_every_side_and_every_number_of_tokens() {
    for (at, instance) in gemvs().enumerate() {
        let tokens: BTreeSet<usize> = cases(at, instance).into_iter().map(|(_, _, m)| m).collect();
        assert!(tokens.iter().copied().eq(0..=MOST_TOKENS), "{}", instance.name);
    }
}

#[test]
fn every_instance_agrees_with_fp64_at_its_edges() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    for (at, instance) in gemvs().enumerate() {
        for (n, k, m) in cases(at, instance) {
            let shape = shape(n, k);
            let (w, x) = (values.bf16(n * k), values.bf16(m * k));
            let projection = device.prepare(instance.format, &w, shape);
            let y = device.project(Some(instance), &projection, &x, lead(instance), m);
            let y = y.unwrap_or_else(|err| panic!("{} at {shape}, m = {m}: {err}", instance.name));
            check(&y, &x, &w, shape, m).unwrap_or_else(|wrong| panic!("{}: {wrong}", instance.name));
        }
    }
}

/// What a value of x, or of W, that is not finite must do to a result. Where an infinite x meets a weight that a packed
/// format keeps apart, its place holds +0, and infinity times that is NaN: not what FP64 gives, but never finite.
fn spoils(special: bf16, other: bf16, y: bf16, apart: bool) -> bool {
    let product = special.to_f32() * other.to_f32();
    if product.is_nan() || apart && y.is_nan() {
        y.is_nan()
    } else {
        y.to_f32() == product
    }
}

#[test]
fn what_is_not_finite_stays_in_its_own_tokens_and_rows() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let specials = [bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY];
    for instance in gemvs() {
        let (n, k, m) = (37, 136, instance.tokens());
        let shape = shape(n, k);
        let (w, x) = (values.bf16(n * k), values.bf16(m * k));
        let run = |w: &[bf16], x: &[bf16]| {
            let projection = device.prepare(instance.format, w, shape);
            let y = device.project(Some(instance), &projection, x, lead(instance), m);
            y.unwrap_or_else(|err| panic!("{}: {err}", instance.name))
        };
        let clean = run(&w, &x);
        // Token 1 + 2·i and row 3 + 5·i get the i-th special value, each at another column.
        let tokens = |i: usize| ((1 + 2 * i) % m, 5 + 47 * i);
        let rows = |i: usize| (3 + 5 * i, 11 + 53 * i);

        let mut spoilt = x.clone();
        for (i, &special) in specials.iter().enumerate() {
            let (token, column) = tokens(i);
            spoilt[token * k + column] = special;
        }
        let y = run(&w, &spoilt);
        for (token, (y, clean)) in y.chunks(n).zip(clean.chunks(n)).enumerate() {
            match (0..specials.len()).find(|&i| tokens(i).0 == token) {
                None => assert_eq!(bits(y), bits(clean), "{}: token {token}", instance.name),
                Some(i) => {
                    let right = |row: usize| {
                        spoils(
                            specials[i],
                            w[row * k + tokens(i).1],
                            y[row],
                            instance.format != Format::Bf16,
                        )
                    };
                    assert!(
                        (0..n).all(right),
                        "{}: token {token} with {}",
                        instance.name,
                        specials[i]
                    );
                }
            }
        }

        let with = |values: [bf16; 3]| {
            let mut spoilt = w.clone();
            for (i, value) in values.into_iter().enumerate() {
                let (row, column) = rows(i);
                spoilt[row * k + column] = value;
            }
            run(&spoilt, &x)
        };
        // Which values a packed format keeps apart hangs on how often each high byte occurs in all rows. So what is
        // compared with has a finite value there with the same high byte.
        let clean = with([bf16::MAX; 3]);
        let y = with(specials);
        for (at, (&y, clean)) in y.iter().zip(&clean).enumerate() {
            let (token, row) = (at / n, at % n);
            match (0..specials.len()).find(|&i| rows(i).0 == row) {
                None => assert_eq!(y.to_bits(), clean.to_bits(), "{}: row {row}", instance.name),
                Some(i) => assert!(
                    spoils(specials[i], x[token * k + rows(i).1], y, false),
                    "{}: row {row} with {} gave {y}",
                    instance.name,
                    specials[i]
                ),
            }
        }
    }
}
