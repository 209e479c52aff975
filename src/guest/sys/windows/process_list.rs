//! All processes of the system at one moment, out of the kernel's table.

use std::io;

use super::nt::{self, number, small_number};

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) name: String,
    pub(super) threads: u32,
    /// In units of 100 ns since 1601; 0 where it is not known.
    pub(super) started: u64,
    /// Processor time in units of 100 ns, in user and kernel mode.
    pub(super) cpu: u64,
    /// Its working set.
    pub(super) memory_bytes: u64,
    /// Threads that run or could.
    pub(super) runnable: u32,
    /// Threads that wait for a page from a disk.
    pub(super) paging: u32,
}

/// Reads the table.
pub(super) fn snapshot() -> io::Result<Vec<Entry>> {
    let answer = nt::process_table()?;
    Ok(parse(answer.bytes(), answer.base()))
}

/// Where a process' threads begin behind it.
const THREADS_AT: usize = 256;

/// Bytes of a thread.
const THREAD: usize = 80;

/// Pointers in the table are into it; `base` is where it lay.
fn parse(table: &[u8], base: usize) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(record) = table.get(at..) {
        let Some(entry) = entry(record, table, base) else { break };
        // number 0 is what a processor does that has nothing to do
        if entry.pid != 0 {
            found.push(entry);
        }
        match small_number(record, 0) {
            Some(next) if next > 0 => at += usize::try_from(next).unwrap_or(usize::MAX - at),
            _ => break,
        }
    }
    found.sort_unstable_by_key(|entry| entry.pid);
    found
}

fn entry(record: &[u8], table: &[u8], base: usize) -> Option<Entry> {
    let pid = |at| number(record, at).and_then(|pid| u32::try_from(pid).ok());
    let threads = small_number(record, 4)?;
    let in_state = |of: &dyn Fn(u32, u32) -> bool| {
        let end = small_number(record, 0).filter(|next| *next > 0).map_or(record.len(), |next| next as usize);
        let listed = record.get(THREADS_AT..end.min(record.len())).unwrap_or_default().chunks_exact(THREAD);
        let count = listed
            .take(threads as usize)
            .filter(|thread| {
                small_number(thread, 68).zip(small_number(thread, 72)).is_some_and(|(state, reason)| of(state, reason))
            })
            .count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let name_bytes = small_number(record, 56)? & 0xffff;
    let name = number(record, 64)
        .and_then(|pointer| usize::try_from(pointer).ok()?.checked_sub(base))
        .and_then(|from| table.get(from..from.checked_add(name_bytes as usize)?))
        .map(nt::text)
        .unwrap_or_default();
    let pid_of_it = pid(80)?;
    Some(Entry {
        pid: pid_of_it,
        parent: pid(88)?,
        name: if name.is_empty() && pid_of_it == 4 { "System".to_owned() } else { name },
        threads,
        started: number(record, 32)?,
        cpu: number(record, 40)?.saturating_add(number(record, 48)?),
        memory_bytes: number(record, 144)?,
        // ready, running, standby, ready elsewhere
        runnable: in_state(&|state, _| matches!(state, 1 | 2 | 3 | 7)),
        // waiting, for a page
        paging: in_state(&|state, reason| state == 5 && matches!(reason, 2 | 9 | 18)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_it() {
        let all = snapshot().unwrap();
        assert!(all.is_sorted_by_key(|entry| entry.pid));
        let own = all.iter().find(|entry| entry.pid == std::process::id()).unwrap();
        let program = std::env::current_exe().unwrap();
        assert_eq!(own.name, program.file_name().unwrap().to_string_lossy());
        assert!(own.threads >= 1 && own.memory_bytes > 100_000, "{own:?}");
        assert_eq!(Some(own.started), super::super::start_time(own.pid));
    }

    #[test]
    fn a_table_is_read_up_to_where_it_makes_sense() {
        let mut record = vec![0_u8; THREADS_AT + 2 * THREAD + 8];
        let base = 0x1_0000_0000_usize;
        let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
        put(4, &2_u32.to_le_bytes());
        put(32, &7_u64.to_le_bytes());
        put(40, &3_u64.to_le_bytes());
        put(48, &4_u64.to_le_bytes());
        put(56, &4_u16.to_le_bytes());
        let name_at = THREADS_AT + 2 * THREAD;
        put(64, &(base + name_at).to_le_bytes());
        put(80, &12_u64.to_le_bytes());
        put(88, &8_u64.to_le_bytes());
        put(144, &4096_u64.to_le_bytes());
        put(THREADS_AT + 68, &2_u32.to_le_bytes());
        put(THREADS_AT + THREAD + 68, &5_u32.to_le_bytes());
        put(THREADS_AT + THREAD + 72, &9_u32.to_le_bytes());
        put(name_at, &[b'h', 0, b'i', 0]);
        let seen = parse(&record, base);
        let expected = Entry {
            pid: 12,
            parent: 8,
            name: "hi".to_owned(),
            threads: 2,
            started: 7,
            cpu: 7,
            memory_bytes: 4096,
            runnable: 1,
            paging: 1,
        };
        assert_eq!(seen, [expected]);
        for len in 0..152 {
            assert_eq!(parse(&record[..len], base), []);
        }
        // a name elsewhere is none, and a step beyond the end the end
        record[64..72].copy_from_slice(&u64::MAX.to_le_bytes());
        record[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse(&record, base)[0].name, "");
    }
}
