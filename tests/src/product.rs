//! Matrix products for many tokens, launched as they are, in the context that is current.

use crate::driver::{self, Function, Launch, Module, OwnContext};
use crate::{GUARD, UNWRITTEN};
use hopper_cuda_driver::emulated::{self, Counters};
use hopper_cuda_driver::ffi;
use hopper_proj::bf16;
use hopper_proj::formats::{bf16 as packing, window12};
use hopper_proj::instances::formats::window12::STARTS_AFTER;
use hopper_proj::instances::{
    FallbackGemmArgs, Format, GateArgs, Gemm, GemmArgs, Loads, PackedGemmArgs, Score, SplitKArgs,
};
use std::ffi::c_void;

/// Bytes around every operand and every result: no multiple of 16, so that masked loads meet odd addresses.
const GUARD_BYTES: usize = GUARD * size_of::<bf16>();

/// What is multiplied: `x` is `[m, k]`, each term of the weights `[n, k]`.
#[derive(Debug)]
pub struct Operands {
    /// Tokens.
    pub m: usize,
    /// Weight rows.
    pub n: usize,
    /// Columns.
    pub k: usize,
    /// Activations.
    pub x: Vec<bf16>,
    /// The weights' terms.
    pub terms: Vec<Vec<bf16>>,
    /// Factors of the weight rows.
    pub factors: Option<Vec<f32>>,
}

/// How the work is divided and joined.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    /// Parts of K that a cluster has: as many CTAs, times those that share x.
    pub cluster: usize,
    /// Slices of K.
    pub slices: usize,
    /// Whether slices have sums of their own.
    pub serial: bool,
    /// Whether y is FP32.
    pub fp32: bool,
    /// Experts to choose by their logits as they are; 0 for the logits alone.
    pub top_k: usize,
    /// Whether a launch may overlap the one ahead.
    pub overlaps: bool,
}

impl Division {
    /// All of K to a CTA, an FP32 result.
    pub const NONE: Division = Division {
        cluster: 1,
        slices: 1,
        serial: false,
        fp32: true,
        top_k: 0,
        overlaps: false,
    };

    /// CTAs per cluster.
    fn ctas(&self, instance: &Gemm) -> usize {
        self.cluster * instance.multicast
    }
}

/// The parts of K that clusters of an instance can have.
pub fn clusters(instance: &Gemm) -> Vec<usize> {
    let sizes = [1, 2, 4, 8].into_iter();
    sizes.filter(|parts| parts * instance.multicast <= 8).collect()
}

/// The code of a failed call, and the story.
pub type Failure = (u32, String);

/// A product that is ready to be called, again and again on one workspace.
#[derive(Debug)]
pub struct Product<'a> {
    instance: &'static Gemm,
    operands: &'a Operands,
    division: Division,
    function: Function,
    maps: [ffi::CUtensorMap; 2],
    args: FallbackGemmArgs,
    units: Option<Packed>,
    x: Region,
    row_major: u64,
    y: Region,
    ids: Region,
    weights: Region,
    sums: Region,
    counters: Region,
}

/// Packed weights in device memory.
#[derive(Clone, Copy, Debug)]
struct Packed {
    units: Region,
    starts: u64,
    exceptions: u64,
    palette: [u32; 2],
}

impl Packed {
    fn new(format: Format, operands: &Operands) -> Self {
        let shape = crate::shape(operands.n, operands.k);
        let [weights] = &operands.terms[..] else {
            panic!("units of one term are wanted");
        };
        if format == Format::Bf16 {
            let units: Vec<u8> = (packing::pack(weights, shape)
                .expect("weights that can be packed")
                .iter())
            .flat_map(|weight| weight.to_le_bytes())
            .collect();
            return Packed {
                units: Region::new(&units, 16),
                starts: 0,
                exceptions: 0,
                palette: [0; 2],
            };
        }
        let packed = window12::pack(weights, shape).expect("weights that can be packed");
        let words = |values: &mut dyn Iterator<Item = u64>| -> Vec<u8> { values.flat_map(u64::to_le_bytes).collect() };
        let exceptions = words(&mut packed.exceptions().iter().map(|exception| exception.word()));
        let end = packed.exceptions().len() as u64;
        let starts = words(&mut packed.starts().iter().copied().chain([end; STARTS_AFTER - 1]));
        Packed {
            units: Region::new(packed.units(), 16),
            starts: driver::memory(&starts),
            exceptions: if exceptions.is_empty() {
                0
            } else {
                driver::memory(&exceptions)
            },
            palette: packed.palette_words(),
        }
    }

    fn args(&self, gemm: GemmArgs) -> PackedGemmArgs {
        PackedGemmArgs {
            weights: self.units.address(),
            starts: self.starts,
            exceptions: self.exceptions,
            palette: self.palette,
            gemm,
        }
    }
}

/// Device memory between guards.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// Where the guard before it starts.
    start: u64,
    lead: usize,
    len: usize,
}

impl Region {
    /// A copy of these bytes, `lead` bytes behind the start of an allocation.
    fn new(bytes: &[u8], lead: usize) -> Self {
        let whole = [&vec![UNWRITTEN; lead], bytes, &[UNWRITTEN; GUARD_BYTES]].concat();
        Region {
            start: driver::memory(&whole),
            lead,
            len: bytes.len(),
        }
    }

    fn address(&self) -> u64 {
        self.start + self.lead as u64
    }

    /// Its bytes, having made sure that the guards are as they were.
    fn read(&self) -> Result<Vec<u8>, Failure> {
        let whole = driver::read(self.start, self.lead + self.len + GUARD_BYTES).map_err(failure)?;
        let (before, rest) = whole.split_at(self.lead);
        let (bytes, behind) = rest.split_at(self.len);
        assert!(
            before.iter().chain(behind).all(|&byte| byte == UNWRITTEN),
            "guards were written"
        );
        Ok(bytes.to_vec())
    }

    fn read_f32(&self) -> Result<Vec<f32>, Failure> {
        let bytes = self.read()?;
        Ok(bytes
            .as_chunks()
            .0
            .iter()
            .map(|&word| f32::from_le_bytes(word))
            .collect())
    }

    fn poison(&self) {
        driver::write(self.address(), &vec![UNWRITTEN; self.len]);
    }
}

fn failure(code: u32) -> Failure {
    (code, emulated::last_fault().unwrap_or_default())
}

/// Rows of `k` values, `stride` apart, NaNs between.
fn rows(values: &[bf16], k: usize, stride: usize) -> Vec<u8> {
    let padding = vec![bf16::NAN; stride - k];
    let rows = values.chunks(k).flat_map(|row| [row, &padding].concat());
    rows.flat_map(bf16::to_le_bytes).collect()
}

fn x_map(instance: &Gemm, address: u64, sizes: [usize; 2], stride: usize) -> ffi::CUtensorMap {
    let copied = instance.x_box().map(|side| side as u32);
    driver::tensor_map(address, &sizes.map(|size| size as u64), &[2 * stride as u64], &copied)
}

fn weight_map(instance: &Gemm, address: u64, sizes: [usize; 3], stride: usize) -> ffi::CUtensorMap {
    let strides = [2 * stride, 2 * stride * sizes[1]].map(|bytes| bytes as u64);
    let copied = instance.weight_box().map(|side| side as u32);
    driver::tensor_map(address, &sizes.map(|size| size as u64), &strides, &copied)
}

impl<'a> Product<'a> {
    /// Takes the instance's kernel and puts the operands into device memory: with NaNs behind every row, and at odd
    /// addresses where plain loads take them.
    pub fn new(function: Function, instance: &'static Gemm, operands: &'a Operands, division: Division) -> Self {
        let Operands { m, n, k, .. } = *operands;
        let (lead, stride) = match instance.loads {
            Loads::Tma | Loads::Packed(_) => (48, k.next_multiple_of(8) + 8),
            Loads::Masked if k % 2 == 0 => (16, k.next_multiple_of(8)),
            Loads::Masked => (GUARD_BYTES, k + 3),
        };
        let x = Region::new(&rows(&operands.x, k, stride), lead);
        let weights: Vec<u8> = operands.terms.iter().flat_map(|term| rows(term, k, stride)).collect();
        let weights = Region::new(&weights, lead);
        let maps = match instance.loads {
            Loads::Masked => [ffi::CUtensorMap::default(); 2],
            Loads::Packed(_) => [
                x_map(instance, x.address(), [k, m], stride),
                ffi::CUtensorMap::default(),
            ],
            Loads::Tma => [
                x_map(instance, x.address(), [k, m], stride),
                weight_map(instance, weights.address(), [k, n, instance.terms], stride),
            ],
        };
        let units = match instance.loads {
            Loads::Packed(format) => Some(Packed::new(format, operands)),
            Loads::Tma | Loads::Masked => None,
        };
        let result = |bytes: usize, lead: usize| Region::new(&vec![UNWRITTEN; bytes], lead);
        // A vector store needs alignment that a result need not have.
        let y = result(
            m * n * if division.fp32 { 4 } else { 2 },
            if n % 2 == 0 { 16 } else { 12 },
        );
        let ids = result(m * division.top_k * 4, 12);
        let chosen = result(m * division.top_k * 4, 12);
        let sums = Region::new(
            &if division.serial {
                vec![UNWRITTEN; division.slices * m * n * 4]
            } else {
                vec![0; m * n * 4]
            },
            16,
        );
        let grid = instance
            .grid(m, n, division.ctas(instance), division.slices)
            .expect("a grid within bounds");
        let counters = Region::new(&vec![0; 4 * Gemm::counters(grid) as usize], 16);
        let factors = operands.factors.as_ref().map_or(0, |factors| {
            driver::memory(&factors.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
        });
        let args = FallbackGemmArgs {
            x: x.address(),
            x_stride: stride as u64,
            weights: weights.address(),
            weight_stride: stride as u64,
            term_stride: (stride * n) as u64,
            gemm: GemmArgs {
                y: y.address(),
                m: m as u32,
                n: n as u32,
                k: k as u32,
                y_fp32: u32::from(division.fp32),
                k_slices: instance.k_slices(k, division.ctas(instance), division.slices),
                split_k: SplitKArgs {
                    sums: sums.address(),
                    counters: counters.address(),
                    scales: factors,
                    slices: division.slices as u32,
                    serial: u32::from(division.serial),
                    gate: GateArgs {
                        bias: 0,
                        token_mask: 0,
                        ids: ids.address(),
                        weights: chosen.address(),
                        top_k: division.top_k as u32,
                        score: Score::Identity as u32,
                        flags: 0,
                        groups: 1,
                        group_size: n as u32,
                        groups_kept: 1,
                        scale: 1.0,
                    },
                },
            },
        };
        Product {
            instance,
            operands,
            division,
            function,
            maps,
            args,
            units,
            x,
            row_major: weights.start,
            y,
            ids,
            weights: chosen,
            sums,
            counters,
        }
    }

    /// Takes x from the BF16 results of another product, which has as many rows as this one has columns.
    pub fn reading(mut self, other: &Product<'_>) -> Self {
        let Operands { m, k, .. } = *self.operands;
        assert!(!other.division.fp32 && (other.operands.m, other.operands.n) == (m, k));
        self.x = other.y;
        (self.args.x, self.args.x_stride) = (self.x.address(), k as u64);
        if self.instance.loads.has_map_of_x() {
            self.maps[0] = x_map(self.instance, self.x.address(), [k, m], k);
        }
        self
    }

    /// The allocation of x.
    pub fn x_memory(&self) -> u64 {
        self.x.start
    }

    /// The allocation of the weights, packed where the kernel takes them so.
    pub fn weight_memory(&self) -> u64 {
        self.units.map_or(self.row_major, |packed| packed.units.start)
    }

    /// The allocations of packed units, of where their exceptions start, and of these: addresses, or zeros for what
    /// there is not.
    pub fn packed_memory(&self) -> [u64; 3] {
        self.units
            .map_or([0; 3], |packed| [packed.units.start, packed.starts, packed.exceptions])
    }

    /// Launches the kernel over poisoned results.
    pub fn call(&self) -> Result<(), Failure> {
        for region in [self.y, self.ids, self.weights] {
            region.poison();
        }
        self.launch()
    }

    /// Calls the kernel, and gives what the emulator counted meanwhile.
    pub fn counted(&self) -> Result<Counters, Failure> {
        emulated::take_counters();
        self.call()?;
        Ok(emulated::take_counters())
    }

    /// Launches the kernel.
    pub fn launch(&self) -> Result<(), Failure> {
        let (instance, division) = (self.instance, self.division);
        let cluster = division.ctas(instance);
        let grid = instance.grid(self.operands.m, self.operands.n, cluster, division.slices);
        let launch = Launch {
            grid: [0, 0],
            threads: instance.threads() as u32,
            cluster: cluster as u32,
            shared: instance.shared_bytes() as u32,
            overlaps: division.overlaps,
        };
        fn pointer<T>(value: &T) -> *const c_void {
            (&raw const *value).cast()
        }
        let [x, weights] = self.maps.each_ref().map(pointer);
        let units = self.units.map(|units| units.args(self.args.gemm));
        let parameters = match (instance.loads, &units) {
            (_, Some(units)) => vec![x, pointer(units)],
            (Loads::Masked, None) => vec![pointer(&self.args)],
            (_, None) => vec![x, weights, pointer(&self.args.gemm)],
        };
        // SAFETY: these are the parameters of kernels that load in this way.
        match unsafe { launch.run_on(grid.expect("checked before"), self.function, &parameters) } {
            0 => Ok(()),
            code => Err(failure(code)),
        }
    }

    /// The results, as FP32 values.
    pub fn y(&self) -> Result<Vec<f32>, Failure> {
        if self.division.fp32 {
            return self.y.read_f32();
        }
        let bytes = self.y.read()?;
        let values = bytes.as_chunks().0.iter();
        Ok(values.map(|&pair| bf16::from_le_bytes(pair).to_f32()).collect())
    }

    /// The chosen experts, best first, and their weights.
    pub fn chosen(&self) -> Result<(Vec<i32>, Vec<f32>), Failure> {
        let ids = self.ids.read()?;
        let ids = ids.as_chunks().0.iter().map(|&word| i32::from_le_bytes(word)).collect();
        Ok((ids, self.weights.read_f32()?))
    }

    /// Whether the workspace is as the first call found it, which the next one expects.
    pub fn workspace_is_clean(&self) -> Result<bool, Failure> {
        let zeros = |bytes: Vec<u8>| bytes.iter().all(|&byte| byte == 0);
        Ok(zeros(self.counters.read()?) && (self.division.serial || zeros(self.sums.read()?)))
    }
}

/// Tokens, rows and columns of the two products of a [`chain`]: each CTA of the second has more chunks than the ring
/// has stages, and comes through every unrolled copy of the loops.
pub fn chain_sizes(instance: &Gemm) -> [[usize; 3]; 2] {
    let between = 2 * 64 * (2 * instance.stages + 1);
    [[40, between, 64], [40, 24, between]]
}

/// Runs y = x · Wᵀ, z = y · Vᵀ right behind it, and the first again right behind that, by the kernel of this text.
///
/// The first has more slices of K than chunks.
pub fn chain(
    ptx: &str,
    instance: &'static Gemm,
    [first, second]: &[Operands; 2],
    seed: Option<u64>,
) -> Result<[Vec<f32>; 2], Failure> {
    let _context = OwnContext::new();
    emulated::set_seed(seed);
    let function = Module::load(ptx).function(instance.name);
    let division = Division {
        slices: 2,
        fp32: false,
        overlaps: true,
        ..Division::NONE
    };
    let clustered = Division {
        cluster: 2,
        slices: 1,
        ..division
    };
    let first = Product::new(function, instance, first, division);
    let second = Product::new(function, instance, second, clustered).reading(&first);
    first.launch()?;
    second.launch()?;
    first.launch()?;
    Ok([first.y()?, second.y()?])
}
