//! Loads, stores, prefetches and fences.

use super::operand::{int_of, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Access, Fence, Op, Order, Prefetch, Reg, Space, StoreAsync};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("ld", |d, p, s| access(d, p, s, true)),
    ("ldu", |d, p, s| access(d, p, s, true)),
    ("st", store),
    ("prefetch", prefetch),
    ("prefetchu", prefetch),
    ("applypriority", |d, p, s| advise(d, p, s, "L2::evict_normal")),
    ("discard", |d, p, s| advise(d, p, s, "L2")),
    ("createpolicy", create_policy),
    ("fence", fence),
    ("membar", membar),
];

/// Where copies in caches are to be kept: without effect here.
const CACHES: &[&str] = &["ca", "cg", "cs", "lu", "cv", "nc", "wb", "wt"];
pub(super) const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];

/// Takes a state space; generic addresses where there is none.
pub(super) fn space(parts: &mut Parts<'_>) -> Space {
    const SPACES: &[(&str, Space)] = &[
        ("global", Space::Global),
        ("const", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("shared::cluster", Space::Cluster),
        ("param", Space::Param),
        ("param::entry", Space::Param),
        ("param::func", Space::Param),
        ("local", Space::Local),
    ];
    let found = SPACES.iter().find(|(name, _)| parts.flag(name));
    found.map_or(Space::Generic, |&(_, space)| space)
}

/// Takes what says how an access is ordered.
pub(super) fn order(parts: &mut Parts<'_>, default: Order) -> Order {
    let strong = Order {
        strong: true,
        ..Order::default()
    };
    let mut order = match parts.any(&["weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"]) {
        None => default,
        Some("weak") => Order::default(),
        Some("acquire") => Order {
            acquire: true,
            ..strong
        },
        Some("release") => Order {
            release: true,
            ..strong
        },
        Some("acq_rel") => Order {
            acquire: true,
            release: true,
            ..strong
        },
        Some("mmio") => {
            parts.flag("relaxed");
            strong
        }
        Some(_) => strong,
    };
    order.wide = is_wide(parts.any(SCOPES));
    order
}

/// Whether a scope holds the whole device. Strong accesses that name none have the scope `.gpu`, or `.sys`.
fn is_wide(scope: Option<&str>) -> bool {
    !matches!(scope, Some("cta" | "cluster"))
}

/// Takes cache hints; whether a cache policy follows the operands.
pub(super) fn hints(parts: &mut Parts<'_>) -> bool {
    let policy = parts.flag("L2::cache_hint");
    parts.drop_prefixed("L1::");
    parts.drop_prefixed("L2::");
    parts.any(CACHES);
    policy
}

/// The operands without the cache policy, which has no effect but must be there.
pub(super) fn without_policy<'s>(d: &mut Decoder<'_>, source: &'s Source, policy: bool) -> Result<&'s [Operand]> {
    match source.operands.split_last() {
        Some((last, rest)) if policy => {
            d.source(last, Type::B64)?;
            Ok(rest)
        }
        _ => Ok(&source.operands),
    }
}

fn access(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, load: bool) -> Result {
    let order = order(parts, Order::default());
    let constant = parts.left_with("const");
    let of_kernel = parts.left_with("param::entry");
    let mut space = space(parts);
    if constant && !load {
        return Err("constant memory cannot be written".into());
    }
    let policy = hints(parts);
    let count = match parts.any(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    };
    let ty = parts.ty()?;
    if ty == Type::Pred || ty == Type::B128 && count > 1 || ty.bytes() * count as u32 > 32 {
        return Err(no_type(ty));
    }
    // A function's own parameters are in its local memory.
    if space == Space::Param && d.in_function && !of_kernel {
        space = Space::Local;
    }
    let (value, address) = match (without_policy(d, source, policy)?, load) {
        ([value, address], true) | ([address, value], false) => (value, address),
        _ => return Err("an address and a value are wanted".into()),
    };
    let elements = d.elements(value);
    if elements.len() != count {
        return Err(format!("{count} elements are wanted, {} are given", elements.len()));
    }
    let mut regs: Vec<Option<Reg>> = Vec::with_capacity(count);
    let mut bytes = ty.bytes();
    if ty == Type::B128 {
        bytes = 8;
        regs.extend(d.wide_register(value)?.map(Some));
    }
    let mut sign_to = 0;
    for element in elements.into_iter().filter(|_| ty != Type::B128) {
        regs.push(match (element, load) {
            (Operand::Discard, true) => None,
            (element, true) => {
                let (reg, width) = d.wide_target(element, ty.bits())?;
                if int_of(ty).is_some_and(|int| int.signed) {
                    sign_to = width;
                }
                Some(reg)
            }
            (element, false) => Some(d.wide_source(element, ty)?),
        });
    }
    let address = d.address(address, space)?;
    if address.space == Space::Param && !load {
        return Err("parameters cannot be written".into());
    }
    let access = Access {
        address,
        bytes,
        sign_to,
        regs: regs.into(),
        order,
    };
    d.ops.push(if load {
        Op::Load(Box::new(access))
    } else {
        Op::Store(Box::new(access))
    });
    Ok(())
}

fn store(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    if parts.flag("async") {
        store_async(d, parts, source)
    } else {
        access(d, parts, source, false)
    }
}

/// `st.async`, of one, two or four elements, which an mbarrier of the same CTA counts.
fn store_async(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.flag("weak");
    parts.flag("shared::cluster");
    parts.one_of(&["mbarrier::complete_tx::bytes"])?;
    let count = match parts.any(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    };
    let ty = parts.ty()?;
    let taken = [
        Type::B32,
        Type::B64,
        Type::U32,
        Type::U64,
        Type::S32,
        Type::S64,
        Type::F32,
        Type::F64,
    ];
    if !taken.contains(&ty) || ty.bytes() * count as u32 > 16 {
        return Err(no_type(ty));
    }
    let [to, value, barrier] = d.operands(source)?;
    let elements = d.elements(value);
    if elements.len() != count {
        return Err(format!("{count} elements are wanted, {} are given", elements.len()));
    }
    let values: Result<Vec<Reg>> = elements.into_iter().map(|element| d.wide_source(element, ty)).collect();
    let store = StoreAsync {
        to: d.address(to, Space::Cluster)?,
        bytes: ty.bytes(),
        values: values?.into(),
        barrier: d.address(barrier, Space::Cluster)?,
    };
    d.ops.push(Op::StoreAsync(Box::new(store)));
    Ok(())
}

fn prefetch(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let space = space(parts);
    let [address] = d.operands(source)?;
    if parts.flag("tensormap") {
        return super::tensor::prefetch_map(d, address, space);
    }
    if !matches!(space, Space::Generic | Space::Global | Space::Local) {
        return Err("prefetches are for global and local memory".into());
    }
    parts.one_of(&["L1", "L2", "L2::evict_last", "L2::evict_normal"])?;
    let prefetch = Prefetch {
        address: d.address(address, space)?,
        size: None,
    };
    d.ops.push(Op::Prefetch(Box::new(prefetch)));
    Ok(())
}

/// Instructions about 128 bytes of global memory in a cache, without effect here. What `discard` leaves of the bytes is
/// undefined, and what they were will do.
fn advise(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, what: &str) -> Result {
    parts.flag("global");
    parts.one_of(&[what])?;
    let [address, size] = d.operands(source)?;
    if d.literal(size)? != 128 {
        return Err("the size must be 128".into());
    }
    let advice = Prefetch {
        address: d.address(address, Space::Global)?,
        size: None,
    };
    d.ops.push(Op::Prefetch(Box::new(advice)));
    Ok(())
}

/// Policies are only ever handed on to instructions that ignore them.
fn create_policy(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["fractional", "range", "cvt"])?;
    parts.flag("global");
    parts.drop_prefixed("L2");
    parts.one_of(&["b64"])?;
    let to = source.operands.first().ok_or("a destination is wanted")?;
    let zero = d.constant(0);
    let op = Op::Lane1(super::lanes::lanes1(|a| a), d.target(to, 64)?, zero);
    d.ops.push(op);
    Ok(())
}

fn fence(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let fence = if parts.flag("proxy") {
        let kinds = ["alias", "async", "async.global", "tensormap::generic", "async::generic"];
        parts.one_of(&kinds)?;
        parts.any(&["acquire", "release"]);
        parts.drop_prefixed("sync_restrict::");
        space(parts);
        parts.any(SCOPES);
        // The tensor map's address and size.
        if source.operands.len() > 2 {
            return Err("at most an address and a size are wanted".into());
        }
        Fence::Proxy
    } else if parts.flag("mbarrier_init") {
        parts.one_of(&["release"])?;
        parts.one_of(&["cluster"])?;
        Fence::MbarrierInit
    } else {
        parts.any(&["sc", "acq_rel", "acquire", "release"]);
        parts.drop_prefixed("sync_restrict::");
        Fence::Memory {
            wide: is_wide(Some(parts.one_of(SCOPES)?)),
        }
    };
    d.ops.push(Op::Fence(fence));
    Ok(())
}

fn membar(d: &mut Decoder<'_>, parts: &mut Parts<'_>, _: &Source) -> Result {
    if parts.flag("proxy") {
        parts.one_of(&["alias"])?;
        d.ops.push(Op::Fence(Fence::Proxy));
    } else {
        let wide = is_wide(Some(parts.one_of(&["cta", "gl", "sys"])?));
        d.ops.push(Op::Fence(Fence::Memory { wide }));
    }
    Ok(())
}
