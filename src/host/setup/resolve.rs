//! From what is asked for and what was, to the pod's settings, each checked.

use rand::TryRng as _;

use super::{
    SetupSettings, port_choice,
    request::{EngineChoice, SetupRequest},
};
use crate::{
    compose::Secret,
    host::{
        AgentKind, EngineKind, Error, ErrorKind, GuestOs, Home, Machine, Pod, PodName, PodSettings, Result,
        engine::{self, ContainerState},
    },
};

/// What a guest without more wishes gets: enough for Windows 11 to install and run.
const DEFAULT_CPUS: u32 = 2;
const DEFAULT_RAM: &str = "4G";
const DEFAULT_DISK: &str = "64G";
/// The image's own default, so that its documentation holds.
const DEFAULT_USER: &str = "Docker";
/// No machine has more; a mistyped number does.
const MAX_CPUS: u32 = 1024;

/// The settings, and whether the pod runs now.
pub(super) async fn resolve(
    home: &Home,
    name: &PodName,
    request: &SetupRequest,
    earlier: Option<&Pod>,
    settings: &SetupSettings,
) -> Result<(PodSettings, bool)> {
    let was = earlier.map(Pod::settings);
    let engine = match (request.engine, was) {
        (Some(EngineChoice::Given(engine)), _) => engine,
        (None, Some(was)) => was.engine,
        (Some(EngineChoice::Auto) | None, _) => engine::detect(&settings.engine).await?,
    };
    let runs = runs(earlier, request, engine).await;
    if let Some(was) = was.filter(|was| runs && was.engine != engine) {
        let detail = format!("the pod {name} runs with {} and cannot change to {engine}", was.engine);
        return Err(Error::new(ErrorKind::Settings, detail)
            .with_hint(format!("take it down first: `podlink pod down --pod {name}`")));
    }
    let guest = guest(request, was, engine)?;
    let asked = [request.agent_port, request.rdp_port, request.web_port];
    let ports = port_choice::choose(home, name, asked, was.map(|was| &was.ports), runs)?;
    let machine = match engine {
        EngineKind::Local => was.and_then(|was| was.machine.clone()),
        EngineKind::Podman | EngineKind::Docker => Some(machine(request, was, guest)?),
    };
    let agent = agent(request, was, engine, guest)?;
    Ok((PodSettings { engine, guest, agent, ports, machine }, runs))
}

/// Asked of the engine only where the answer matters: it takes a while.
async fn runs(earlier: Option<&Pod>, request: &SetupRequest, engine: EngineKind) -> bool {
    let Some(pod) = earlier else { return false };
    let was = pod.settings();
    let names_a_port = request.agent_port.or(request.rdp_port).or(request.web_port).is_some();
    let matters = was.engine == EngineKind::Local || was.engine != engine || names_a_port;
    matters && is_up(earlier).await
}

/// Whether the pod has its ports and its memory now; an engine that is gone runs nothing.
pub(super) async fn is_up(pod: Option<&Pod>) -> bool {
    let Some(pod) = pod else { return false };
    matches!(engine::state(pod).await, Ok(ContainerState::Running | ContainerState::Paused))
}

fn guest(request: &SetupRequest, was: Option<&PodSettings>, engine: EngineKind) -> Result<GuestOs> {
    if engine == EngineKind::Local {
        if request.guest == Some(GuestOs::Windows) {
            return Err(Error::new(
                ErrorKind::Settings,
                "the local engine runs scripts on this machine, which is no Windows",
            )
            .with_hint("leave `--guest` out, or choose podman or docker"));
        }
        return Ok(GuestOs::Linux);
    }
    // what a local pod was says nothing of what its container is to be
    let kept = was.filter(|was| was.engine != EngineKind::Local || was.machine.is_some()).map(|was| was.guest);
    Ok(request.guest.or(kept).unwrap_or(GuestOs::Windows))
}

/// winpodx' agent runs in Windows alone.
fn agent(request: &SetupRequest, was: Option<&PodSettings>, engine: EngineKind, guest: GuestOs) -> Result<AgentKind> {
    let agent = request.agent.or(was.map(|was| was.agent)).unwrap_or_default();
    if request.agent == Some(AgentKind::Winpodx) && (engine == EngineKind::Local || guest != GuestOs::Windows) {
        return Err(Error::new(ErrorKind::Settings, "winpodx' agent runs in Windows guests alone")
            .with_hint("leave `--agent` out, or choose podman or docker and `--guest windows`"));
    }
    Ok(agent)
}

fn machine(request: &SetupRequest, was: Option<&PodSettings>, guest: GuestOs) -> Result<Machine> {
    let earlier = was.and_then(|was| was.machine.as_ref());
    let kept_image = earlier.filter(|_| was.is_some_and(|was| was.guest == guest)).map(|machine| machine.image.clone());
    let image = match request.image.clone().or(kept_image) {
        Some(image) => image,
        None if guest == GuestOs::Windows => default_image().to_owned(),
        None => {
            return Err(Error::new(ErrorKind::Settings, "a Linux guest has no default image")
                .with_hint("name one that follows the contract of qemus/qemu with `--image`"));
        }
    };
    let text = |asked: &Option<String>, kept: Option<&String>, default: &str| {
        asked.as_ref().or(kept).map_or_else(|| default.to_owned(), Clone::clone)
    };
    let machine = Machine {
        image,
        cpus: request.cpus.or(earlier.map(|machine| machine.cpus)).unwrap_or(DEFAULT_CPUS),
        ram: text(&request.ram, earlier.map(|machine| &machine.ram), DEFAULT_RAM),
        disk: text(&request.disk, earlier.map(|machine| &machine.disk), DEFAULT_DISK),
        user: text(&request.user, earlier.map(|machine| &machine.user), DEFAULT_USER),
        password: match request.password.as_ref().or(earlier.map(|machine| &machine.password)) {
            Some(password) => password.clone(),
            None => random_password()?,
        },
        timezone: match earlier {
            Some(earlier) => request.timezone.clone().or(earlier.timezone.clone()),
            None => request.timezone.clone().or_else(this_timezone),
        },
        network: request.network.clone().or(earlier.and_then(|machine| machine.network.clone())),
    };
    check(&machine)?;
    Ok(machine)
}

const fn default_image() -> &'static str {
    if cfg!(target_arch = "aarch64") { "docker.io/dockurr/windows-arm:6.02" } else { "docker.io/dockurr/windows:6.02" }
}

fn check(machine: &Machine) -> Result<()> {
    let wrong = |flag: &str, what: String| Err(Error::new(ErrorKind::Settings, format!("{flag} {what}")));
    if !(1..=MAX_CPUS).contains(&machine.cpus) {
        return wrong("--cpus", format!("is {}; it goes from 1 to {MAX_CPUS}", machine.cpus));
    }
    for (flag, size) in [("--ram", &machine.ram), ("--disk", &machine.disk)] {
        if !is_size(size) {
            return wrong(flag, format!("is {size:?}; write a number and M, G or T, such as 4G"));
        }
    }
    if machine.user.is_empty() {
        return wrong("--user", "is empty".into());
    }
    let texts = [
        ("--timezone", machine.timezone.as_ref()),
        ("--network", machine.network.as_ref()),
        ("--image", Some(&machine.image)),
    ];
    for (flag, text) in texts {
        if text.is_some_and(|text| text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control())) {
            return wrong(flag, "is empty or holds blanks".into());
        }
    }
    Ok(())
}

/// This machine's time zone by its name in the IANA database; `None` where it has none that could be told.
fn this_timezone() -> Option<String> {
    // `/usr/share/zoneinfo/Europe/Vienna`, whatever the system's own place for it
    let link = std::fs::read_link("/etc/localtime").ok();
    let linked = link.as_ref().and_then(|link| Some(link.to_str()?.split_once("/zoneinfo/")?.1.to_owned()));
    let written = || Some(fs_err::read_to_string("/etc/timezone").ok()?.trim().to_owned());
    let is_name = |name: &String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+'))
    };
    std::env::var("TZ").ok().filter(is_name).or(linked).or_else(written).filter(is_name)
}

/// A size as the image takes it: `4G`.
fn is_size(text: &str) -> bool {
    let Some(number) = text.strip_suffix(['M', 'G', 'T']) else { return false };
    number.bytes().all(|c| c.is_ascii_digit()) && !number.starts_with('0') && number.parse::<u32>().is_ok()
}

/// 20 of 57 characters, 116 bits, made of what no keyboard layout, shell or reader confuses.
fn random_password() -> Result<Secret> {
    const LENGTH: usize = 20;
    const CHARACTERS: &[u8; 57] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789";
    let mut password = String::with_capacity(LENGTH);
    while password.len() < LENGTH {
        let mut bytes = zeroize::Zeroizing::new([0; 64]);
        rand::rngs::SysRng.try_fill_bytes(bytes.as_mut()).map_err(|error| {
            Error::new(ErrorKind::Internal, "no randomness for a password").with_source(error.to_string())
        })?;
        // a byte beyond the last whole multiple would make some characters likelier
        let fair = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < 4 * CHARACTERS.len());
        password.extend(fair.map(|byte| char::from(CHARACTERS[byte % CHARACTERS.len()])).take(LENGTH - password.len()));
    }
    Ok(Secret::new(password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for good in ["4G", "512M", "1T"] {
            assert!(is_size(good), "{good}");
        }
        for bad in ["", "G", "4", "0G", "04G", "4g", "4 G", "-4G", "4.5G", "99999999999G", "４G"] {
            assert!(!is_size(bad), "{bad}");
        }
    }

    #[test]
    fn passwords_differ() {
        let (one, two) = (random_password().unwrap(), random_password().unwrap());
        assert_eq!((one.expose().len(), two.expose().len()), (20, 20));
        assert_ne!(one, two);
    }
}
