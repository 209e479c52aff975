//! podlink makes a VM that runs inside a container scriptable from its host.
//!
//! One executable plays both parts: the agent in the guest (`podlink agent serve`) and the tool on the host
//! (`podlink setup`, `podlink pod …`). The library holds all of it; the command line is one of its callers.
//!
//! | room | owns |
//! | --- | --- |
//! | [`protocol`] | the wire: what goes over HTTP between host and guest; no I/O |
//! | [`token`] | the bearer token: made, stored, staged, watched, proved |
//! | [`compose`] | the pod as data in, `compose.yaml` out, and the checks of it |
//! | [`host`] | the host's side: client, readiness, engines, the pod's folder |
//! | [`guest`] | the agent: admission, gates, exec |
//! | [`cmd`] | clap in, text or JSON out |
//!
//! Arrows go down only: `cmd` calls `host` and `guest`, which never name each other; `protocol`, `token` and
//! `compose` name none of the three.

#[cfg(not(any(unix, windows)))]
compile_error!("what differs by operating system lives in guest/sys, which has halves for Unix and Windows alone");

/// What README.md shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod cmd;
#[cfg(unix)]
pub mod compose;
pub mod guest;
#[cfg(unix)]
pub mod host;
pub mod protocol;
pub mod token;
