//! A terminal with a program on it, driven as a person would: keys in, the screen's text out.

use std::{
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};

use super::wait_for;

/// For whatever a program is to show.
const PATIENCE: Duration = Duration::from_secs(20);

/// A terminal of its own with `podlink` on it.
pub struct Terminal {
    master: std::fs::File,
    slave: OwnedFd,
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

/// What of a terminal's attributes a program may change.
pub fn attributes(terminal: &OwnedFd) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, special_codes, .. } =
        tcgetattr(terminal).unwrap();
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?} {special_codes:?}")
}

impl Terminal {
    /// Runs a command with a new terminal of this size as all three of its streams.
    ///
    /// `setsid` becomes the command: the terminal is its controlling one, and the process number stays.
    pub fn run(command: &Command, rows: u16, cols: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        tcsetwinsize(&master, size(rows, cols)).unwrap();
        let mut whole = Command::new("setsid");
        whole.arg("--ctty").arg(command.get_program()).args(command.get_args()).env_clear();
        whole.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let stream = || std::process::Stdio::from(slave.try_clone().unwrap());
        let child = whole.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        let master = std::fs::File::from(master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (master.try_clone().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut chunk) {
                sink.lock().unwrap().extend_from_slice(&chunk[..count]);
            }
        });
        Self { master, slave, child, shown }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn attributes(&self) -> String {
        attributes(&self.slave)
    }

    /// Whether keys go through as they are.
    pub fn is_raw(&self) -> bool {
        let attributes = tcgetattr(&self.slave).unwrap();
        !attributes.local_modes.intersects(rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ISIG)
    }

    /// As a shell has its terminal while no program is on it.
    pub fn make_cooked(&self) {
        use rustix::termios::{InputModes, LocalModes, OptionalActions, OutputModes, tcsetattr};
        let mut attributes = tcgetattr(&self.slave).unwrap();
        attributes.local_modes |= LocalModes::ICANON | LocalModes::ISIG | LocalModes::ECHO;
        attributes.input_modes |= InputModes::ICRNL;
        attributes.output_modes |= OutputModes::OPOST;
        tcsetattr(&self.slave, OptionalActions::Now, &attributes).unwrap();
    }

    #[track_caller]
    pub fn wait_until_raw(&self) {
        wait_for("raw mode", PATIENCE, || self.is_raw());
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        tcsetwinsize(&self.master, size(rows, cols)).unwrap();
    }

    /// All that was ever shown.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until this has been shown.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(&format!("{text:?} on the terminal"), |shown| shown.contains(text));
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(&self.shown()) {
            assert!(Instant::now() < deadline, "waited in vain for {what}; shown: {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the program's end.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end; shown: {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn size(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}
