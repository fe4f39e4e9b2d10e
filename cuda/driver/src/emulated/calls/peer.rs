//! Peers: devices that reach each other's memory, of which one device has none.

use crate::codes::{Answer, Code};
use crate::emulated::context::{Context, current, ready};
use crate::emulated::device::check;
use crate::emulated::state::{STATE, put};
use crate::types::*;

/// `CUdevice_P2PAttribute` ends here.
const P2P_ATTRIBUTES: std::ops::RangeInclusive<c_uint> = 1..=5;

/// A device is no peer of its own.
pub(crate) unsafe fn can_access_peer(can: *mut c_int, device: CUdevice, peer: CUdevice) -> Answer {
    ready()?;
    check(device)?;
    check(peer)?;
    // SAFETY: the caller promises that `can` is valid for a write.
    unsafe { put(can, 0) }
}

pub(crate) unsafe fn peer_attribute(value: *mut c_int, which: c_uint, from: CUdevice, to: CUdevice) -> Answer {
    ready()?;
    if value.is_null() || !P2P_ATTRIBUTES.contains(&which) {
        return Err(Code::INVALID_VALUE);
    }
    check(from)?;
    check(to)?;
    // There is one device, so both are the same.
    Err(Code::INVALID_DEVICE)
}

/// There is one device, so no context can be given access to another device's memory. Contexts of one device share it
/// anyway.
pub(crate) unsafe fn enable_peer(peer: CUcontext, flags: c_uint) -> Answer {
    let current = current()?;
    let peer = STATE.find::<Context>(peer.addr())?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    Err(if peer.context == current.context {
        Code::INVALID_CONTEXT
    } else {
        Code::PEER_ACCESS_UNSUPPORTED
    })
}

pub(crate) unsafe fn disable_peer(peer: CUcontext) -> Answer {
    current()?;
    STATE.find::<Context>(peer.addr())?;
    Err(Code::PEER_ACCESS_NOT_ENABLED)
}
