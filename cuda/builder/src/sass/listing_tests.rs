use super::*;

/// A main loop in an outer loop, with its slow path at the end of the code, a short loop around one copy, and a matrix
/// instruction outside every loop.
const TEXT: &str = "
	.headerflags	@\"EF_CUDA_TEXMODE_UNIFIED\"
//--------------------- .text.k --------------------------
	.section	.text.k,\"ax\",@progbits
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   HMMA.16816.F32.BF16 R0, R4, R8, R0 ;
.L_outer:
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR6][R14.64] ;
        /*0030*/                   BSSY B0, `(.L_after) ;
.L_main:
        /*0040*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R7+URZ], R16 ;
        /*0050*/              @!P0 BRA `(.L_slow) ;
.L_back:
        /*0060*/                   LDS.128 R36, [R51] ;
        /*0070*/                   LDS R36, [R51] ;
        /*0080*/                   HMMA.16816.F32.BF16 R36, R36, R24.reuse, R32 ;
        /*0090*/                   HMMA.16816.F32.BF16 R36, R36, R24, R32 ;
.L_copy:
        /*00a0*/                   UBLKCP.S.G [UR10], [UR8], UR4 ;
        /*00b0*/               @P0 BRA.U.ANY `(.L_copy) ;
        /*00c0*/                   BRA.U UP0, `(.L_main) ;
.L_after:
        /*00d0*/               @P1 BRA `(.L_outer) ;
        /*00e0*/                   EXIT ;
.L_slow:
        /*00f0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R7+URZ], R16 ;
        /*0100*/              @!P0 BRA `(.L_slow) ;
        /*0110*/                   BRA `(.L_back) ;
.L_end:
        /*0120*/                   BRA `(.L_end);
	.section	.text.other,\"ax\",@progbits
.text.other:
        /*0000*/                   EXIT ;
";

#[test]
fn every_entry_and_instruction_is_read() {
    let listing = Listing::parse(TEXT);
    let shape: Vec<_> = listing
        .entries
        .iter()
        .map(|e| (e.name.as_str(), e.instructions.len()))
        .collect();
    assert_eq!(shape, [("k", 19), ("other", 1)]);
}

#[test]
fn modifiers_in_between_do_not_matter() {
    let entry = &Listing::parse(TEXT).entries[0];
    for (wanted, count) in [
        ("LDG.128", 1),
        ("LDG.E.128", 1),
        ("LDG.64", 0),
        ("LDS", 2),
        ("LDS.128", 1),
        ("HMMA", 3),
        ("LD", 0),
    ] {
        assert_eq!(entry.count(wanted), count, "{wanted}");
    }
}

#[test]
fn the_main_loop_is_the_innermost_one_with_matrix_instructions_and_holds_its_slow_path() {
    let entry = &Listing::parse(TEXT).entries[0];
    assert_eq!(entry.loops().len(), 4);
    assert_eq!(entry.count_in_main_loops("HMMA"), [2]);
    assert_eq!(entry.count_in_main_loops("LDS.128"), [1]);
    assert_eq!(
        entry.count_in_main_loops("LDG.128"),
        [0],
        "that one is in the outer loop"
    );
    assert_eq!(entry.count_in_main_loops("SYNCS"), [2]);
}

#[test]
fn code_without_loops_has_no_main_loop() {
    let listing = Listing::parse(".text.k:\n/*0000*/ HMMA R0 ;\n/*0010*/ EXIT ;\n");
    assert_eq!(listing.entries[0].count("HMMA"), 1);
    assert!(listing.entries[0].count_in_main_loops("HMMA").is_empty());
}

#[test]
fn text_cut_short_is_read_without_a_panic() {
    for end in 0..TEXT.len() {
        for entry in Listing::parse(&TEXT[..end]).entries {
            entry.count_in_main_loops("HMMA");
        }
    }
}
