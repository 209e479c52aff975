//! `GET /system/info`: what the guest is, and on request what is installed in it.

use std::{io, process::Stdio, time::Duration};

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

use super::{
    GuestError,
    state::AppState,
    sys::{self, PACKAGE_LISTS, PackageList, WaitedFor},
    system,
};
use crate::protocol::{ErrorCode, Package};

/// Most bytes that a list of packages may have: ten times what a full desktop's takes.
const MOST_LISTED: u64 = 16 * 1024 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InfoQuery {
    packages: Option<String>,
}

/// `GET /system/info`.
pub(super) async fn get(
    State(state): State<AppState>,
    query: Result<Query<InfoQuery>, QueryRejection>,
) -> Result<Response, GuestError> {
    let patience = state.config().deadlines.snapshot;
    let packages = query.map_err(|error| error.body_text()).and_then(|Query(query)| match query.packages.as_deref() {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(other) => Err(format!("packages is {other:?}")),
    });
    let packages = packages
        .map_err(|detail| GuestError::new(ErrorCode::BadRequest, detail).hint("packages is 1 or 0, true or false"))?;
    let looks = state.looks();
    let taken = if packages {
        // the program's own deadline comes first, so that the rest is told all the same
        let (runtime, deadline) = (tokio::runtime::Handle::current(), patience.mul_f64(0.8));
        let look = move || {
            let mut info = sys::system_info()?;
            match runtime.block_on(packages_of(deadline)) {
                Ok(packages) => info.packages = Some(packages),
                Err(error) => info.packages_error = Some(error.to_string()),
            }
            Ok(info)
        };
        looks.packages.json(patience, look).await
    } else {
        looks.info.json(patience, sys::system_info).await
    };
    system::answer(system::json(taken))
}

/// What the first package list that there is says.
async fn packages_of(deadline: Duration) -> io::Result<Vec<Package>> {
    for list in PACKAGE_LISTS {
        match tokio::time::timeout(deadline, printed(list)).await {
            Ok(Ok(text)) => return Ok(PackageList::parse(&text)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(Err(error)) => return Err(io::Error::other(format!("{}: {error}", list.program))),
            Err(_) => {
                let detail = format!("{} did not end within {:.1} s", list.program, deadline.as_secs_f64());
                return Err(io::Error::new(io::ErrorKind::TimedOut, detail));
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "there is neither dpkg-query nor rpm"))
}

/// What it prints; dropped before its end, it is killed.
async fn printed(list: &PackageList) -> io::Result<Vec<u8>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "no call of anybody's: two programs that only read, without children"
    )]
    let mut command = tokio::process::Command::new(list.program);
    command.args(list.args).env("LC_ALL", "C").current_dir("/").kill_on_drop(true);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let _waited_for = child.id().map(WaitedFor::new);
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MOST_LISTED + 1).read_to_end(&mut text).await?;
    }
    if text.len() as u64 > MOST_LISTED {
        return Err(io::Error::other(format!("it printed more than {MOST_LISTED} bytes")));
    }
    let status = child.wait().await?;
    if status.success() { Ok(text) } else { Err(io::Error::other(format!("it ended with {status}"))) }
}
