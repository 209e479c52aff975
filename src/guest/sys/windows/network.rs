//! What went through the network interfaces.
//!
//! UNSAFETY: the call gives a pointer to what it allocates, which is read within the count that it says and let go of.
#![expect(unsafe_code, reason = "the table of interfaces has no safe form")]

use std::ptr::null_mut;

use windows_sys::Win32::{
    Foundation::ERROR_SUCCESS,
    NetworkManagement::IpHelper::{FreeMibTable, GetIfTable2, MIB_IF_ROW2, MIB_IF_TABLE2},
};

use super::nt::until_zero;
use crate::protocol::NetworkIo;

/// Most of them that are told of.
const MOST: usize = 256;

/// A bit of an interface's flags: it is a filter in front of another, which counts the same again.
const IS_FILTER: u8 = 1 << 1;

/// A bit of an interface's flags: a device is behind it.
const IS_HARDWARE: u8 = 1;

/// The kind of the interface that leads back.
const LOOPBACK: u32 = 24;

/// Each interface that has a device behind it or has had anything to do.
pub(super) fn network() -> Vec<NetworkIo> {
    let mut table: *mut MIB_IF_TABLE2 = null_mut();
    // SAFETY: the place is one for a pointer.
    if unsafe { GetIfTable2(&raw mut table) } != ERROR_SUCCESS || table.is_null() {
        return Vec::new();
    }
    // SAFETY: the table says how many rows are behind it.
    let rows = unsafe {
        std::slice::from_raw_parts((&raw const (*table).Table).cast::<MIB_IF_ROW2>(), (*table).NumEntries as usize)
    };
    let mut found: Vec<NetworkIo> = rows.iter().filter_map(interface).take(MOST).collect();
    // SAFETY: the call asks for this, and it is done once; nothing points into it any more.
    unsafe { FreeMibTable(table.cast()) };
    found.sort_by(|a, b| a.interface.cmp(&b.interface));
    found
}

fn interface(row: &MIB_IF_ROW2) -> Option<NetworkIo> {
    let flags = row.InterfaceAndOperStatusFlags._bitfield;
    let counts = row.InOctets > 0 || row.OutOctets > 0 || row.Type == LOOPBACK || flags & IS_HARDWARE != 0;
    if !counts || flags & IS_FILTER != 0 {
        return None;
    }
    Some(NetworkIo {
        interface: until_zero(&row.Alias),
        received_bytes: row.InOctets,
        received_packets: row.InUcastPkts.saturating_add(row.InNUcastPkts),
        receive_errors: row.InErrors,
        receive_drops: row.InDiscards,
        sent_bytes: row.OutOctets,
        sent_packets: row.OutUcastPkts.saturating_add(row.OutNUcastPkts),
        send_errors: row.OutErrors,
        send_drops: row.OutDiscards,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_names() {
        let seen = network();
        assert!(!seen.is_empty() && seen.iter().all(|interface| !interface.interface.is_empty()), "{seen:?}");
    }
}
