//! Runs of this same executable, as a user would start it.

use std::{ffi::OsStr, time::Duration};

use super::run::{Finished, Invocation};
use crate::host::{Error, ErrorKind, Home, PodName, Result};

/// This executable's path.
pub(super) fn path() -> Result<std::path::PathBuf> {
    std::env::current_exe()
        .map_err(|error| Error::new(ErrorKind::Internal, "this executable's own path is not known").with_source(error))
}

/// Runs `podlink` with these arguments on a pod of `home`, to its end.
///
/// # Errors
/// When it cannot be started or does not end in time.
pub async fn run_this_program<I: IntoIterator<Item: AsRef<OsStr>>>(
    home: &Home,
    pod: &PodName,
    args: I,
    deadline: Duration,
) -> Result<Finished> {
    let mut invocation = Invocation::new(&path()?, args, deadline);
    invocation.env.push(("PODLINK_HOME".into(), home.config().into()));
    invocation.env.push(("PODLINK_POD".into(), pod.as_str().into()));
    invocation.run().await
}
