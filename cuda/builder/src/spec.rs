//! What the project promises of each kernel entry.

/// One kernel entry: how it is launched and what its code must look like.
///
/// The table of these is the single source for the finishing pass, the lint and the check of the machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntrySpec {
    /// The entry's symbol in the PTX.
    pub name: String,
    /// Threads of a CTA in x (y and z are 1); becomes `.maxntid`.
    pub threads: u32,
    /// CTAs that must fit on one SM; becomes `.minnctapersm`.
    pub min_ctas: u32,
    /// Registers a thread may use.
    pub max_registers: u32,
    /// Dynamic shared memory that the launch asks for, in bytes.
    pub shared_bytes: u32,
    /// CTAs in a cluster; 1 for none.
    pub cluster: u32,
    /// How many of the first parameters are tensor maps, whose alignment the finishing pass raises to 64.
    pub tensor_maps: usize,
    /// How often each barrier and `.sync` instruction occurs, by the beginning of its mnemonic.
    pub counts: Vec<(String, u32)>,
    /// What the machine code must hold.
    pub sass: Vec<SassPromise>,
    /// Machine mnemonics that may stand nowhere, written as in [`SassPromise::mnemonic`].
    pub forbidden: Vec<String>,
    /// The most integer instructions that the main loop may hold.
    pub max_integers_in_main_loop: Option<u32>,
}

/// A count of machine instructions that an entry's code must reach.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SassPromise {
    /// The beginning of the machine mnemonic, such as `HMMA` or `LDS.128`; modifiers in between are allowed
    /// (`LDG.128` stands for `LDG.E.128.CONSTANT` too).
    pub mnemonic: String,
    /// The least number of them.
    pub at_least: u32,
    /// Where they must stand: in the innermost loop that holds the matrix instructions, or anywhere in the entry.
    pub in_main_loop: bool,
}

impl EntrySpec {
    /// An entry of `threads` threads: one CTA per SM, up to 255 registers, no shared memory, no cluster, no tensor
    /// maps, no barriers.
    pub fn new(name: impl Into<String>, threads: u32) -> Self {
        Self {
            name: name.into(),
            threads,
            min_ctas: 1,
            max_registers: 255,
            shared_bytes: 0,
            cluster: 1,
            tensor_maps: 0,
            counts: Vec::new(),
            sass: Vec::new(),
            forbidden: Vec::new(),
            max_integers_in_main_loop: None,
        }
    }

    /// Sets the CTAs that must fit on one SM.
    pub fn min_ctas(mut self, ctas: u32) -> Self {
        self.min_ctas = ctas;
        self
    }

    /// Sets the registers a thread may use.
    pub fn max_registers(mut self, registers: u32) -> Self {
        self.max_registers = registers;
        self
    }

    /// Sets the dynamic shared memory of a launch.
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Sets the CTAs in a cluster.
    pub fn cluster(mut self, ctas: u32) -> Self {
        self.cluster = ctas;
        self
    }

    /// Says how many of the first parameters are tensor maps.
    pub fn tensor_maps(mut self, count: usize) -> Self {
        self.tensor_maps = count;
        self
    }

    /// Expects exactly `count` instructions whose mnemonic begins with `mnemonic`.
    pub fn count(mut self, mnemonic: impl Into<String>, count: u32) -> Self {
        self.counts.push((mnemonic.into(), count));
        self
    }

    /// Promises at least `at_least` machine instructions anywhere in the entry.
    pub fn promise(mut self, mnemonic: impl Into<String>, at_least: u32) -> Self {
        self.sass.push(SassPromise {
            mnemonic: mnemonic.into(),
            at_least,
            in_main_loop: false,
        });
        self
    }

    /// Promises at least `at_least` machine instructions in the main loop.
    pub fn promise_in_main_loop(mut self, mnemonic: impl Into<String>, at_least: u32) -> Self {
        self.sass.push(SassPromise {
            mnemonic: mnemonic.into(),
            at_least,
            in_main_loop: true,
        });
        self
    }

    /// Promises that no machine instruction is of this kind.
    pub fn forbid(mut self, mnemonic: impl Into<String>) -> Self {
        self.forbidden.push(mnemonic.into());
        self
    }

    /// Promises at most `count` integer instructions in the main loop.
    pub fn max_integers_in_main_loop(mut self, count: u32) -> Self {
        self.max_integers_in_main_loop = Some(count);
        self
    }
}
