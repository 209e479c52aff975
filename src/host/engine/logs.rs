//! A pod's log: its container's, or its agent's where the engine is local.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::Duration,
};

use super::{ContainerState, EngineSettings, container, local};
use crate::host::{EngineKind, Error, ErrorKind, Pod, Result};

/// Between two looks at a file that grows.
const POLL: Duration = Duration::from_millis(200);

/// What of a log is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// Go on until the pod ends, with what it says from now on.
    pub follow: bool,
    /// No more than this many of the last lines of what is there.
    pub tail: Option<u32>,
}

/// Where a piece of a log was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Hands a pod's log on, piece by piece.
///
/// # Errors
/// When there is no container, the engine fails, or the file cannot be read.
pub async fn logs(
    pod: &Pod,
    request: LogRequest,
    settings: &EngineSettings,
    mut sink: impl FnMut(LogStream, &[u8]),
) -> Result<()> {
    match pod.settings().engine {
        EngineKind::Podman | EngineKind::Docker => {
            let invocation = container::logs(pod, request.follow, request.tail, settings).await?;
            let stream = |is_stderr| if is_stderr { LogStream::Stderr } else { LogStream::Stdout };
            invocation.stream(|is_stderr, bytes| sink(stream(is_stderr), bytes)).await
        }
        EngineKind::Local => follow_file(pod, request, |bytes| sink(LogStream::Stdout, bytes)).await,
    }
}

/// The last lines of a container's log, for the eye; none for a local pod.
///
/// # Errors
/// When there is no container or the engine fails.
pub async fn last_log_lines(pod: &Pod, count: u32, settings: &EngineSettings) -> Result<Vec<String>> {
    if pod.settings().engine == EngineKind::Local {
        return Ok(Vec::new());
    }
    let finished = container::logs(pod, false, Some(count), settings).await?.run_to_success().await?;
    // docker keeps the two streams apart, and what is last cannot be told
    let lines = [&finished.stdout, &finished.stderr].into_iter().flat_map(|text| text.lines());
    // a progress bar draws over itself: what stands after the last return is what one would see
    let seen = lines.map(|line| line.trim_end().rsplit('\r').next().unwrap_or_default().trim().to_owned());
    Ok(seen.filter(|line| !line.is_empty()).collect())
}

async fn follow_file(pod: &Pod, request: LogRequest, mut sink: impl FnMut(&[u8])) -> Result<()> {
    let path = local::log_file(pod);
    let failed = |error: io::Error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let failure = Error::new(ErrorKind::File, format!("could not read {}", path.display())).with_source(error);
        if missing {
            failure.with_hint(format!("start the pod with `podlink pod up --pod {}`", pod.name()))
        } else {
            failure
        }
    };
    let mut file = File::open(&path).map_err(failed)?;
    if let Some(tail) = request.tail {
        let at = start_of_tail(&mut file, tail).map_err(failed)?;
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
    }
    let mut chunk = vec![0; 16 << 10];
    loop {
        // asked before the last read: what the agent said before it ended is read still
        let ended = local::state(pod)? != ContainerState::Running;
        copy(&mut file, &mut chunk, &mut sink).map_err(failed)?;
        if !request.follow || (ended && !is_replaced(&file, &path)) {
            return Ok(());
        }
        if is_replaced(&file, &path)
            && let Ok(next) = File::open(&path)
        {
            copy(&mut file, &mut chunk, &mut sink).map_err(failed)?;
            file = next;
        } else {
            tokio::time::sleep(POLL).await;
        }
    }
}

fn copy(file: &mut File, chunk: &mut [u8], sink: &mut impl FnMut(&[u8])) -> io::Result<()> {
    loop {
        match file.read(chunk)? {
            0 => return Ok(()),
            count => sink(&chunk[..count]),
        }
    }
}

/// Whether another file has taken the name: the agent turns its log over when it grows large.
fn is_replaced(file: &File, path: &Path) -> bool {
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    matches!((file.metadata().map(id), std::fs::metadata(path).map(id)), (Ok(open), Ok(named)) if open != named)
}

/// Where the last `count` lines begin, looked for from the end.
fn start_of_tail(file: &mut File, count: u32) -> io::Result<u64> {
    const STEP: u64 = 16 << 10;
    let len = file.metadata()?.len();
    if count == 0 {
        return Ok(len);
    }
    let (mut at, mut ends) = (len, 0);
    let mut chunk = Vec::new();
    while at > 0 {
        let begin = at.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        chunk.clear();
        file.by_ref().take(at - begin).read_to_end(&mut chunk)?;
        let mut offset = begin + chunk.len() as u64;
        for byte in chunk.iter().rev() {
            // the line end at the very end begins no further line
            if *byte == b'\n' && offset < len {
                ends += 1;
                if ends == count {
                    return Ok(offset);
                }
            }
            offset -= 1;
        }
        at = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_last_lines_are_found() {
        let long = "x".repeat(20_000);
        let mut file = tempfile::tempfile().unwrap();
        write!(file, "one\n{long}\nthree\n").unwrap();
        let mut tail = |count| {
            let at = start_of_tail(&mut file, count).unwrap();
            file.seek(SeekFrom::Start(at)).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(tail(0), "");
        assert_eq!(tail(1), "three\n");
        assert_eq!(tail(2), format!("{long}\nthree\n"));
        assert_eq!(tail(3).len(), 4 + 20_001 + 6);
        assert_eq!(tail(9).len(), 4 + 20_001 + 6);
    }
}
