//! Where a command's waiting happens.

use super::report::Failure;

/// Runs a command's future to its end.
pub(super) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| anyhow::Error::from(error).context("could not start the runtime"))?;
    runtime.block_on(future)
}
