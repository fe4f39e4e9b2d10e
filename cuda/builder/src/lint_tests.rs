//! Each trap that the lint is there for, planted into a module that is otherwise in order.

use super::*;

const PTX: &str = "\
.version 8.0
.target sm_90a
.extern .shared .align 1024 .b8 dyn_smem[];
.visible .entry k(
	.param .b64 k_param_0
)
.maxntid 256, 1, 1
.minnctapersm 2
{
	.reg .pred 	%p<3>, p; .reg .b32 %r<9>, r; .reg .b64 %rd<3>; .reg .f32 %f<5>;
	barrier.cluster.arrive.aligned;
	barrier.cluster.wait.aligned;
$L__BB0_1:
	// begin inline asm
	{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], %r2; selp.u32 %r3, 1, 0, p; }
	// end inline asm
	@%p1 bra 	$L__BB0_1;
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};
	bar.warp.sync 	-1;
	bar.sync 	0;
	ret;
}
";

fn table() -> Vec<EntrySpec> {
    vec![
        EntrySpec::new("k", 256)
            .min_ctas(2)
            .count("bar.sync", 1)
            .count("bar.warp.sync", 1)
            .count("barrier.cluster.arrive", 1)
            .count("barrier.cluster.wait", 1)
            .count("mma.sync", 2)
            .count("shfl.sync", 0),
    ]
}

fn faults(ptx: &str) -> Vec<Fault> {
    lint(ptx, &table()).into_iter().map(|finding| finding.fault).collect()
}

/// The module with one part replaced, and proof that the part was there.
fn with(from: &str, to: &str) -> String {
    assert!(PTX.contains(from), "{from}");
    PTX.replacen(from, to, 1)
}

fn count(mnemonic: &str, found: u32, expected: u32) -> Fault {
    Fault::Count {
        mnemonic: mnemonic.into(),
        found,
        expected,
    }
}

#[test]
fn a_module_in_order_has_no_findings() {
    assert_eq!(lint(PTX, &table()), []);
}

#[test]
fn losing_launch_bounds_is_found() {
    let lost = Fault::Bounds {
        directive: ".maxntid",
        found: "missing".into(),
        expected: "256, 1, 1".into(),
    };
    assert_eq!(faults(&with(".maxntid 256, 1, 1\n", "")), [lost]);
    let other = Fault::Bounds {
        directive: ".minnctapersm",
        found: "3".into(),
        expected: "2".into(),
    };
    assert_eq!(faults(&with(".minnctapersm 2", ".minnctapersm 3")), [other]);
    let commented = with(".maxntid 256, 1, 1\n", "// .maxntid 256, 1, 1\n");
    assert_eq!(faults(&commented).len(), 1);
}

#[test]
fn spacing_of_launch_bounds_does_not_matter() {
    assert_eq!(faults(&with(".maxntid 256, 1, 1", ".maxntid 256,1,1")), []);
}

#[test]
fn a_copied_barrier_is_found() {
    assert_eq!(
        faults(&with("bar.sync \t0;", "bar.sync 0;\n\tbar.sync \t0;")),
        [count("bar.sync", 2, 1)]
    );
}

#[test]
fn a_dropped_cluster_barrier_is_found() {
    let dropped = with("barrier.cluster.wait.aligned;", "");
    assert_eq!(faults(&dropped), [count("barrier.cluster.wait", 0, 1)]);
    let dropped = with("barrier.cluster.arrive.aligned;", "");
    assert_eq!(faults(&dropped), [count("barrier.cluster.arrive", 0, 1)]);
}

#[test]
fn two_spellings_of_one_barrier_are_one() {
    for spelling in [
        "barrier.cta.sync.aligned 0;",
        "barrier.sync.aligned 0;",
        "bar.cta.sync 0;",
    ] {
        assert_eq!(faults(&with("bar.sync \t0;", spelling)), [], "{spelling}");
    }
    // Without `.aligned` it is another instruction.
    let unaligned = faults(&with("bar.sync \t0;", "barrier.cta.sync 0;"));
    assert_eq!(
        unaligned,
        [
            Fault::Unlisted {
                mnemonic: "barrier.cta.sync".into()
            },
            count("bar.sync", 0, 1)
        ]
    );
}

#[test]
fn what_waits_for_other_threads_must_be_listed() {
    for unlisted in [
        "elect.sync _|p, -1;",
        "vote.sync.ballot.b32 r, p, -1;",
        "bar.red.popc.u32 r, 0, p;",
        "barrier.arrive 0, 64;",
    ] {
        let mnemonic = unlisted.split(' ').next().unwrap().to_owned();
        let found = lint(&with("\tret;", &format!("\t{unlisted}\n\tret;")), &table());
        assert_eq!(found.len(), 1, "{unlisted}");
        assert_eq!(found[0].fault, Fault::Unlisted { mnemonic });
        assert_eq!(found[0].line, Some(22));
    }
    assert_eq!(
        faults(&with("\tret;", "\tshfl.sync.bfly.b32 r, r, 1, 31, -1;\n\tret;")),
        [count("shfl.sync", 1, 0)]
    );
}

#[test]
fn the_longest_listed_mnemonic_counts() {
    let both = [EntrySpec::new("k", 256)
        .min_ctas(2)
        .count("bar", 2)
        .count("bar.sync", 0)
        .count("barrier.cluster", 2)
        .count("mma.sync", 0)
        .count("mma.sync.aligned.m16n8k16", 2)];
    let found = lint(PTX, &both);
    let faults: Vec<_> = found.into_iter().map(|finding| finding.fault).collect();
    assert_eq!(faults, [count("bar", 1, 2), count("bar.sync", 1, 0)]);
}

#[test]
fn local_memory_and_calls_are_found_where_they_stand() {
    let cases = [
        (
            "\tret;",
            "\t.local .align 4 .b8 \t__local_depot5[256];\n\tret;",
            ".local",
        ),
        ("\tret;", "\tst.local.b32 \t[%rd1], 0;\n\tret;", "st.local.b32"),
        ("\tret;", "\tcvta.local.u64 \t%rd1, %rd2;\n\tret;", "cvta.local.u64"),
        ("\tret;", "\t@%p1 call.uni %rd1, (%r1);\n\tret;", "call.uni"),
        (".visible", ".func helper()\n{\n\tret;\n}\n.visible", ".func"),
        (".visible", ".extern .func helper();\n.visible", ".func"),
        (".b64 k_param_0", ".b64 .ptr .local k_param_0", ".local"),
    ];
    for (from, to, what) in cases {
        let found = lint(&with(from, to), &table());
        let [
            Finding {
                line: Some(line),
                fault: Fault::Forbidden { what: word, .. },
                ..
            },
        ] = &found[..]
        else {
            panic!("{to}: {found:?}")
        };
        assert_eq!(word, what);
        assert!(with(from, to).lines().nth(line - 1).unwrap().contains(what), "{to}");
    }
    assert_eq!(
        faults(&with(
            "\tret;",
            "\t.reg .b32 %call, local;\n\tmov.u32 %call, local;\n\tret;"
        )),
        [],
        "names may be anything"
    );
}

#[test]
fn entries_and_table_must_agree_both_ways() {
    let mut longer = table();
    longer.push(EntrySpec::new("other", 32));
    longer.push(EntrySpec::new("other", 32));
    let found: Vec<_> = lint(PTX, &longer)
        .into_iter()
        .map(|f| (f.entry.unwrap(), f.fault))
        .collect();
    assert_eq!(
        found,
        [
            ("other".to_owned(), Fault::NotInPtx),
            ("other".to_owned(), Fault::Repeated)
        ]
    );
    assert_eq!(lint(PTX, &[])[0].fault, Fault::NotInTable);
    let twice = format!("{PTX}{}", &PTX[PTX.find(".visible").unwrap()..]);
    assert_eq!(faults(&twice), [Fault::Repeated]);
    assert_eq!(lint(&twice, &table())[0].entry.as_deref(), Some("k"));
}

#[test]
fn what_is_forbidden_is_found_in_functions_and_where_they_are_called() {
    let helper = ".func helper()\n{\n\t.local .b32 \tx;\n\tst.local.b32 \t[x], 0;\n\tret;\n}\n.visible";
    let ptx = with(".visible", helper).replacen("bar.sync \t0;", "bar.sync 0; call.uni helper;", 1);
    let found: Vec<_> = (lint(&ptx, &table()).into_iter())
        .map(|finding| match finding.fault {
            Fault::Forbidden { what, .. } => (finding.entry, finding.line.unwrap(), what),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (None, 4, ".func".to_owned()),
        (None, 6, ".local".to_owned()),
        (None, 7, "st.local.b32".to_owned()),
        (Some("k".to_owned()), 27, "call.uni".to_owned()),
    ];
    assert_eq!(found, expected);
}

#[test]
fn text_that_cannot_be_read_is_a_finding() {
    let cases = [
        (".version 8.0\n", "", "expected `.version`", 1),
        ("\tret;", "\tret", "expected an operand", 23),
        ("\tret;", "\tadd.u32 %r1, %q, 1;", "%q", 22),
        (
            ".visible",
            ".shadowed",
            "expected a kernel, a function or a variable",
            4,
        ),
    ];
    for (from, to, words, line) in cases {
        let found = lint(&with(from, to), &table());
        let [
            Finding {
                entry: None,
                line: Some(at),
                fault: Fault::Unreadable { message },
            },
        ] = &found[..]
        else {
            panic!("{to}: {found:?}")
        };
        assert!(message.contains(words), "{to}: {message}");
        assert_eq!(*at, line, "{to}");
    }
}

#[test]
fn a_finding_reads_as_one_line() {
    let found = lint(&with("\tret;", "\tst.local.b32 [%rd1], 0;\n\tret;"), &table());
    let text = found[0].to_string();
    assert!(text.starts_with("k (line 22): `st.local.b32`: local memory"), "{text}");
}

#[test]
fn text_cut_short_is_linted_without_a_panic() {
    for end in (0..PTX.len()).filter(|&end| PTX.is_char_boundary(end)) {
        lint(&PTX[..end], &table());
    }
}

#[test]
fn a_tensor_map_must_be_there_and_aligned() {
    let table = [table().remove(0).tensor_maps(1)];
    let faults = |ptx: &str| -> Vec<Fault> { lint(ptx, &table).into_iter().map(|finding| finding.fault).collect() };
    let expected = ".param .align 64 .b8 k_param_0[128]";
    let missing = Fault::TensorMap {
        index: 0,
        expected: expected.into(),
    };
    assert_eq!(faults(&with(".param .b64 k_param_0", expected)), []);
    for other in [".param .b64 k_param_0", ".param .align 8 .b8 k_param_0[128]"] {
        assert_eq!(
            faults(&with(".param .b64 k_param_0", other)),
            std::slice::from_ref(&missing)
        );
    }
}
