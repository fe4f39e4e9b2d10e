//! What the parser makes of a PTX module: names resolved, instructions still in PTX's own spelling.
//!
//! Registers, labels and special registers are resolved here, with PTX's scoping rules; opcodes are only split at
//! their dots. What an opcode means, and which operands it takes, is the decoder's business.

use std::fmt;
use std::ops::Range;

/// A whole PTX module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// The ISA version of the `.version` directive: major, minor.
    pub version: (u32, u32),
    /// The first name of the `.target` directive, such as `sm_90a`.
    pub target: String,
    /// The kernels, in the order of the text.
    pub entries: Vec<Entry>,
    /// Variables declared outside every kernel: `.global`, `.const` and `.shared`, `.extern` ones included.
    pub globals: Vec<Var>,
    /// The functions, in the order of their first mention.
    pub functions: Vec<Function>,
}

/// A `.func`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line that defines it, or else declares it.
    pub line: u32,
    /// What it takes.
    pub params: Vec<Formal>,
    /// What it returns.
    pub returns: Vec<Formal>,
    /// The type of each register, as of [`Entry::registers`].
    pub registers: Vec<Type>,
    /// `.shared` variables declared inside it.
    pub shared: Vec<Var>,
    /// `.local` variables declared inside it, and the [`.param`](Space::Param) ones by which it calls others.
    pub local: Vec<Var>,
    /// The instructions; none where it is only declared.
    pub body: Option<Vec<Inst>>,
}

/// A formal parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Formal {
    /// A `.reg` parameter.
    Register(RegId),
    /// A `.param` one, in memory. Offsets have no meaning here.
    Memory(Param),
}

/// One kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The kernel's name.
    pub name: String,
    /// The line of its `.entry` directive.
    pub line: u32,
    /// Its parameters, laid out as the launch passes them.
    pub params: Vec<Param>,
    /// Most threads per CTA, from `.maxntid`; axes left out are 1.
    pub max_threads: Option<[u32; 3]>,
    /// Exact threads per CTA, from `.reqntid`; axes left out are 1.
    pub required_threads: Option<[u32; 3]>,
    /// Fewest CTAs that an SM must be able to hold at once, from `.minnctapersm`.
    pub min_ctas: Option<u32>,
    /// Most registers per thread, from `.maxnreg`.
    pub max_registers: Option<u32>,
    /// The CTAs of a cluster, from `.reqnctapercluster`; axes left out are 1.
    pub required_cluster: Option<[u32; 3]>,
    /// Most CTAs of a cluster, from `.maxclusterrank`.
    pub max_cluster_rank: Option<u32>,
    /// Whether `.explicitcluster` forbids a launch without cluster dimensions.
    pub explicit_cluster: bool,
    /// The type of each register; a [`RegId`] indexes this. Each declaration has ids of its own, scoped ones too.
    pub registers: Vec<Type>,
    /// `.shared` variables declared inside the kernel. A name that two scopes declare is made distinct by a suffix
    /// `#2`, `#3`, …, in the operands that mean it too.
    pub shared: Vec<Var>,
    /// `.local` variables declared inside the kernel, named as [`shared`](Self::shared) ones are, and the
    /// [`.param`](Space::Param) ones by which it calls functions.
    pub local: Vec<Var>,
    /// The instructions, in the order of the text.
    pub body: Vec<Inst>,
    /// Where its parts stand in the text.
    pub source: EntrySource,
}

/// Where the parts of a kernel stand in the text, as byte offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntrySource {
    /// The parameter list with its parentheses; where there is none, an empty range after the name.
    pub parameters: Range<usize>,
    /// The performance directives from the first to the last; where there are none, an empty range after the
    /// parameters.
    pub directives: Range<usize>,
    /// The body with its outermost braces.
    pub body: Range<usize>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// The name by which instructions address it.
    pub name: String,
    /// Bytes it takes.
    pub size: u32,
    /// Its alignment in bytes, a power of two.
    pub align: u32,
    /// Where it starts in the parameter buffer.
    pub offset: u32,
    /// The space that `.ptr` says it points into.
    pub points_into: Option<Space>,
    /// The line that names it.
    pub line: u32,
    /// Where its declaration stands in the text, as byte offsets: from `.param` to the last bracket.
    pub source: Range<usize>,
}

/// A variable in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Var {
    /// Its name.
    pub name: String,
    /// Where it lives.
    pub space: Space,
    /// Its alignment in bytes, a power of two.
    pub align: u32,
    /// Bytes it takes; 0 for an array of unstated size, which only `.extern` variables may be.
    pub size: u64,
    /// Whether it was declared `.extern`.
    pub external: bool,
    /// Its first bytes; what follows them up to `size` is zero for `.global` and `.const`, and undefined elsewhere.
    pub init: Vec<u8>,
    /// The parts of `init` that are addresses, zero there.
    pub pointers: Vec<Pointer>,
    /// The line that declares it.
    pub line: u32,
}

/// An address in a variable's initial value.
#[derive(Clone, Debug, PartialEq)]
pub struct Pointer {
    /// Where in the variable it starts; it takes 8 bytes.
    pub at: u64,
    /// The variable or function whose address it is.
    pub name: String,
    /// Bytes to add.
    pub offset: i64,
    /// The line that names it.
    pub line: u32,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// The line that it starts on.
    pub line: u32,
    /// The instruction as written, without guard and semicolon, blanks and comments reduced to single spaces.
    pub text: Box<str>,
    /// The predicate that guards it and whether it is negated (`@!p`).
    pub guard: Option<(RegId, bool)>,
    /// The opcode, split at its dots; qualifiers with `::` are one part (`shared::cta`).
    pub opcode: Box<[String]>,
    /// The operands, in the order of the text.
    pub operands: Vec<Operand>,
}

impl Inst {
    /// The opcode with all its modifiers, as one word: `bar.sync`, `ld.shared::cluster.v4.f32`, …
    pub fn mnemonic(&self) -> String {
        self.opcode.join(".")
    }
}

/// An index into [`Entry::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegId(pub u32);

/// An instruction's operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register.
    Reg(RegId),
    /// An integer constant, as the 64 bits that PTX gives it: a literal above `i64::MAX` shows as negative.
    Int(i64),
    /// A single-precision constant (`0f3F800000`), as bits.
    F32(u32),
    /// A double-precision constant (`0d3FF0000000000000` or `1.0`), as bits. PTX reads decimal constants as double
    /// precision and rounds them to the instruction's type.
    F64(u64),
    /// A special register.
    Special(Special),
    /// `{a, b, …}`: of registers, constants, special registers and `_`.
    Vector(Vec<Operand>),
    /// `[base + offset]`.
    Address(Address),
    /// `[map, {c0, c1, …}]`: a tensor map's address and coordinates.
    Tensor {
        /// The address of the tensor map.
        map: Address,
        /// The coordinates, as many as were written.
        coordinates: Vec<Operand>,
    },
    /// `(a, b, …)`: what a call takes or returns.
    List(Vec<Operand>),
    /// The address of a variable, parameter or function as a value: `mov.u32 %r, name + 4`.
    Symbol {
        /// The variable's, parameter's or function's name.
        name: String,
        /// Bytes to add to its address.
        offset: i64,
    },
    /// A label, as an index into [`Entry::body`]; equal to its length where the label stands at the kernel's end.
    Label(usize),
    /// The labels of a `.branchtargets` list, as [`Label`](Self::Label) gives each.
    Labels(Vec<usize>),
    /// `_`: a destination that is not wanted.
    Discard,
    /// `d|p`: two destinations; `None` stands for `_`.
    Pair(Option<RegId>, Option<RegId>),
    /// `!p`: a negated predicate.
    NotReg(RegId),
}

/// An address: base and byte offset.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// What the offset counts from.
    pub base: AddrBase,
    /// Bytes to add.
    pub offset: i64,
}

/// What an address counts from.
#[derive(Clone, Debug, PartialEq)]
pub enum AddrBase {
    /// A register's value.
    Reg(RegId),
    /// A variable's or parameter's address.
    Symbol(String),
    /// Zero: the offset is the whole address.
    Absolute,
}

/// A PTX state space that holds variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.global`
    Global,
    /// `.const`
    Const,
    /// `.shared`
    Shared,
    /// `.local`
    Local,
    /// `.param`, of variables inside a body
    Param,
}

/// Declares an enumeration whose variants each have one PTX spelling.
macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $(#[doc = concat!("`", $text, "`")] $(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every variant, in the order of their declaration.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// How PTX spells it.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The variant that PTX spells so.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

spelled! {
    /// A fundamental or alternate type, without its dot.
    Type {
        Pred = "pred",
        B8 = "b8", B16 = "b16", B32 = "b32", B64 = "b64", B128 = "b128",
        U8 = "u8", U16 = "u16", U32 = "u32", U64 = "u64",
        S8 = "s8", S16 = "s16", S32 = "s32", S64 = "s64",
        F16 = "f16", F16x2 = "f16x2", Bf16 = "bf16", Bf16x2 = "bf16x2", Tf32 = "tf32",
        F32 = "f32", F64 = "f64",
        E4m3 = "e4m3", E5m2 = "e5m2", E4m3x2 = "e4m3x2", E5m2x2 = "e5m2x2",
        U16x2 = "u16x2", S16x2 = "s16x2",
    }
}

impl Type {
    /// Its width in bits; 1 for a predicate.
    pub fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::B8 | Type::U8 | Type::S8 | Type::E4m3 | Type::E5m2 => 8,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 | Type::E4m3x2 | Type::E5m2x2 => 16,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::Tf32 => 32,
            Type::F16x2 | Type::Bf16x2 | Type::U16x2 | Type::S16x2 => 32,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 64,
            Type::B128 => 128,
        }
    }

    /// Its size in memory in bytes; a predicate has none.
    pub fn bytes(self) -> u32 {
        self.bits() / 8
    }
}

spelled! {
    /// A special register that this emulator knows, with its percent sign.
    Special {
        TidX = "%tid.x", TidY = "%tid.y", TidZ = "%tid.z",
        NtidX = "%ntid.x", NtidY = "%ntid.y", NtidZ = "%ntid.z",
        CtaidX = "%ctaid.x", CtaidY = "%ctaid.y", CtaidZ = "%ctaid.z",
        NctaidX = "%nctaid.x", NctaidY = "%nctaid.y", NctaidZ = "%nctaid.z",
        ClusteridX = "%clusterid.x", ClusteridY = "%clusterid.y", ClusteridZ = "%clusterid.z",
        NclusteridX = "%nclusterid.x", NclusteridY = "%nclusterid.y", NclusteridZ = "%nclusterid.z",
        ClusterCtaidX = "%cluster_ctaid.x", ClusterCtaidY = "%cluster_ctaid.y", ClusterCtaidZ = "%cluster_ctaid.z",
        ClusterNctaidX = "%cluster_nctaid.x", ClusterNctaidY = "%cluster_nctaid.y", ClusterNctaidZ = "%cluster_nctaid.z",
        ClusterCtarank = "%cluster_ctarank", ClusterNctarank = "%cluster_nctarank",
        IsExplicitCluster = "%is_explicit_cluster",
        Laneid = "%laneid", Warpid = "%warpid", Nwarpid = "%nwarpid",
        Smid = "%smid", Nsmid = "%nsmid", Gridid = "%gridid",
        LanemaskEq = "%lanemask_eq", LanemaskLe = "%lanemask_le", LanemaskLt = "%lanemask_lt",
        LanemaskGe = "%lanemask_ge", LanemaskGt = "%lanemask_gt",
        Clock = "%clock", ClockHi = "%clock_hi", Clock64 = "%clock64",
        Globaltimer = "%globaltimer", GlobaltimerLo = "%globaltimer_lo", GlobaltimerHi = "%globaltimer_hi",
        TotalSmemSize = "%total_smem_size", DynamicSmemSize = "%dynamic_smem_size", AggrSmemSize = "%aggr_smem_size",
        ReservedSmemBegin = "%reserved_smem_offset_begin", ReservedSmemEnd = "%reserved_smem_offset_end",
        ReservedSmemCap = "%reserved_smem_offset_cap",
        ReservedSmem0 = "%reserved_smem_offset_0", ReservedSmem1 = "%reserved_smem_offset_1",
        CurrentGraphExec = "%current_graph_exec",
        Envreg1 = "%envreg1", Envreg2 = "%envreg2",
    }
}
