//! A pod of the local engine: the real agent, on this machine.

use std::{
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use super::{Cli, Port, link::Link, wait_for};

/// A local pod; taken down when dropped.
pub struct LocalPod {
    home: tempfile::TempDir,
    port: Port,
}

impl LocalPod {
    /// One that is not up.
    pub fn set_up() -> Self {
        let pod = Self { home: tempfile::tempdir().unwrap(), port: Port::reserve() };
        pod.cli(&["setup", "--engine", "local", "--agent-port", &pod.port().to_string()]).run().exits(0);
        pod
    }

    /// One that takes calls.
    pub fn ready() -> Self {
        let pod = Self::set_up();
        pod.cli(&["pod", "up"]).run().exits(0);
        pod.cli(&["pod", "wait-ready", "--timeout", "30"]).run().exits(0);
        pod
    }

    pub fn cli(&self, args: &[&str]) -> Cli {
        Cli::new(args).home(self.home.path())
    }

    /// `podlink pod …`.
    pub fn pod(&self, args: &[&str]) -> Cli {
        self.cli(&[&["pod"], args].concat())
    }

    /// `podlink pod …`, alive, with pipes for stdout and stderr and this as stdin.
    pub fn spawn(&self, args: &[&str], stdin: impl Into<Stdio>) -> Child {
        self.pod(args).command().stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Leads the calls to its agent over a link from now on.
    pub fn over_link(&self) -> Link {
        let link = Link::to(self.port());
        let file = self.dir().join("pod.yaml");
        let (own, other) = (self.port().to_string(), link.address().port().to_string());
        let settings = std::fs::read_to_string(&file).unwrap();
        assert!(settings.contains(&own), "{settings}");
        std::fs::write(&file, settings.replace(&own, &other)).unwrap();
        link
    }

    pub fn home(&self) -> &std::path::Path {
        self.home.path()
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join("windows")
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The agent's process.
    pub fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.dir().join("agent.pid")).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// The calls that the agent knows and that have not ended.
    pub fn running(&self) -> Vec<serde_json::Value> {
        self.pod(&["ps", "--json"]).run().exits(0).json()["processes"].as_array().unwrap().clone()
    }

    /// Waits until nothing runs any more.
    #[track_caller]
    pub fn wait_until_idle(&self) {
        wait_for("the end of all calls", Duration::from_secs(20), || self.running().is_empty());
    }

    /// A path in its folder.
    pub fn file(&self, name: &str) -> String {
        self.home.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for LocalPod {
    fn drop(&mut self) {
        drop(self.cli(&["pod", "down"]).run());
    }
}
