//! The pod as a quadlet: the file from which podman's generator makes a systemd service.
//!
//! Implementation note: a text passes two readers. podman's generator takes the quotes and backslashes of
//! `Environment=` and sets its own in the command line that it writes; `%` and `$` go through it untouched and mean
//! something to systemd, so both are doubled. `Volume=`, `Image=` and the like are taken as they stand, without quotes.
//! The password goes another way: a value in `[Container]` would end in podman's arguments, where every user of the
//! machine sees it, so it stands in the environment of the service, and podman is given the variable's name alone.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use zeroize::Zeroizing;

use super::{
    emit::{EmitError, check_texts, forwards_agent},
    model::{ComposePod, Relabel, guest_port},
    render::{POD_LABEL, PROJECT_LABEL},
};

const FORM: &str = "the quadlet";
/// The image gives the guest 105 s to shut down before it pulls the plug.
const STOP_SECONDS: u32 = 120;
/// podman's own work around the stop comes on top.
const SERVICE_STOP_SECONDS: u32 = 150;
/// The first start pulls an image of some hundred MiB.
const SERVICE_START_SECONDS: u32 = 1800;

/// The file's name, from which the service has its own: `podlink-windows.container`.
pub fn quadlet_file_name(pod: &str) -> String {
    format!("podlink-{pod}.container")
}

/// Makes the quadlet, and reads it back: each value equal, both legs there, nothing published beyond loopback.
///
/// # Errors
/// When a text cannot be carried, or the result is not what was meant.
pub fn render_quadlet(pod: &ComposePod) -> Result<Zeroizing<String>, EmitError> {
    check_texts(pod, FORM)?;
    for path in [&pod.oem, &pod.shared, &pod.storage] {
        if path.contains(':') {
            return Err(EmitError::Colon { path: path.clone() });
        }
    }
    // one allocation, so that no copy of the password stays behind
    let mut text = Zeroizing::new(String::with_capacity(16 << 10));
    write_unit(&mut text, pod).map_err(|error| EmitError::Unmade { form: FORM, reason: error.to_string() })?;
    check(&text, pod)?;
    Ok(text)
}

fn write_unit(out: &mut String, pod: &ComposePod) -> fmt::Result {
    let (name, file) = (&pod.pod, quadlet_file_name(&pod.pod));
    write!(
        out,
        "\
# {file}: the pod {name} as a service of podman and systemd, made by `podlink setup --pod {name} --emit quadlet`.
#
# It holds the guest's password: only you may read it (mode 0600). It belongs among your own units, not the system's,
# which every user of the machine can read. The folders below are made by `podlink setup --pod {name}`.
#
#   mkdir -p ~/.config/containers/systemd
#   (umask 077 && podlink setup --pod {name} --emit quadlet > ~/.config/containers/systemd/{file})
#   systemctl --user daemon-reload && systemctl --user start podlink-{name}
#
# It then starts with your log-on; with `loginctl enable-linger` as soon as the machine does. Stop it by systemctl, too:
# what podlink or podman stops, systemd starts again.

[Unit]
Description=podlink pod {name}

[Container]
"
    )?;
    writeln!(out, "Image={}", verbatim(&pod.image))?;
    writeln!(out, "ContainerName={}", verbatim(&pod.project))?;
    for (label, value) in [(POD_LABEL, &pod.pod), (PROJECT_LABEL, &pod.project)] {
        writeln!(out, "Label={}", quoted(label, value, Dollar::Doubled).as_str())?;
    }
    for (key, value) in pod.environment() {
        writeln!(out, "Environment={}", quoted(key, &value, Dollar::Doubled).as_str())?;
    }
    // from podman's own environment, which [Service] sets
    writeln!(out, "PodmanArgs=--env PASSWORD --stop-timeout {STOP_SECONDS}")?;
    writeln!(out, "AddCapability=NET_ADMIN")?;
    for device in &pod.devices {
        writeln!(out, "AddDevice={}", verbatim(device))?;
    }
    for port in published(pod) {
        writeln!(out, "PublishPort={port}")?;
    }
    for volume in volumes(pod) {
        writeln!(out, "Volume={}", verbatim(&volume))?;
    }
    writeln!(
        out,
        "
[Service]
# out of podman's arguments, which every user sees
Environment={}
# also when the guest shuts itself down; systemctl stop ends it for good
Restart=always
RestartSec=5
# the first start pulls the image
TimeoutStartSec={SERVICE_START_SECONDS}
# the guest has {STOP_SECONDS} s to shut down
TimeoutStopSec={SERVICE_STOP_SECONDS}

[Install]
WantedBy=default.target",
        quoted("PASSWORD", pod.password.expose(), Dollar::Plain).as_str()
    )
}

fn published(pod: &ComposePod) -> Vec<String> {
    let publish = |host: u16, guest: u16, protocol: &str| format!("127.0.0.1:{host}:{guest}/{protocol}");
    let mut ports =
        vec![publish(pod.ports.agent, guest_port::AGENT, "tcp"), publish(pod.ports.web, guest_port::WEB, "tcp")];
    if let Some(rdp) = pod.ports.rdp {
        ports.extend([publish(rdp, guest_port::RDP, "tcp"), publish(rdp, guest_port::RDP, "udp")]);
    }
    ports
}

fn volumes(pod: &ComposePod) -> [String; 3] {
    let suffix = match pod.relabel {
        Relabel::Private => ":Z",
        Relabel::No => "",
    };
    [(&pod.oem, "/oem"), (&pod.shared, "/shared"), (&pod.storage, "/storage")]
        .map(|(host, inside)| format!("{host}:{inside}{suffix}"))
}

/// Whether `$` begins a variable where the text ends up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dollar {
    /// In a command line.
    Doubled,
    /// In the `Environment=` of a service.
    Plain,
}

/// `"KEY=value"`, as systemd and podman's generator unquote it.
fn quoted(key: &str, value: &str, dollar: Dollar) -> Zeroizing<String> {
    // no character grows beyond twice its size
    let mut text = Zeroizing::new(String::with_capacity(key.len() + 2 * value.len() + 3));
    text.push('"');
    text.push_str(key);
    text.push('=');
    for c in value.chars() {
        match c {
            '\\' => text.push_str(r"\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str(r"\n"),
            '\t' => text.push_str(r"\t"),
            '%' => text.push_str("%%"),
            '$' if dollar == Dollar::Doubled => text.push_str("$$"),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// A value that nobody unquotes.
fn verbatim(text: &str) -> String {
    text.replace('%', "%%").replace('$', "$$")
}

/// The lines of a unit: section, key, value.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut section = "";
    text.lines().filter_map(move |line| {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
            return None;
        }
        let (key, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
        Some((section, key, value))
    })
}

/// Undoes [`quoted`]; `None` where it could not have written this.
fn unquoted(text: &str, dollar: Dollar) -> Option<(String, Zeroizing<String>)> {
    let mut value = Zeroizing::new(String::with_capacity(text.len()));
    let (key, rest) = text.strip_prefix('"')?.strip_suffix('"')?.split_once('=')?;
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        value.push(match (c, dollar) {
            ('\\', _) => match chars.next()? {
                'n' => '\n',
                't' => '\t',
                c @ ('\\' | '"') => c,
                _ => return None,
            },
            ('%', _) | ('$', Dollar::Doubled) => (chars.next()? == c).then_some(c)?,
            ('"', _) => return None,
            (c, _) => c,
        });
    }
    Some((key.to_owned(), value))
}

/// Reads the unit back.
fn check(text: &str, pod: &ComposePod) -> Result<(), EmitError> {
    let leg = |what| EmitError::Leg { form: FORM, what };
    let differs = || EmitError::ReadsBackDifferently { form: FORM };
    let all = |section: &str, key: &str| -> Vec<&str> {
        entries(text).filter(|entry| (entry.0, entry.1) == (section, key)).map(|entry| entry.2).collect()
    };

    let environment: BTreeMap<String, String> = all("Container", "Environment")
        .into_iter()
        .map(|value| unquoted(value, Dollar::Doubled).map(|(key, value)| (key, value.to_string())))
        .collect::<Option<_>>()
        .ok_or_else(differs)?;
    let meant = pod.environment();
    if !environment.iter().map(|(key, value)| (key.as_str(), value)).eq(meant.iter().map(|(key, value)| (*key, value)))
    {
        return Err(differs());
    }
    let service = all("Service", "Environment");
    let password = service.first().and_then(|value| unquoted(value, Dollar::Plain)).ok_or_else(differs)?;
    if service.len() != 1 || password.0 != "PASSWORD" || *password.1 != pod.password.expose() {
        return Err(differs());
    }
    let read_back = |key| all("Container", key).into_iter().map(|value| value.replace("$$", "$").replace("%%", "%"));
    if !read_back("Volume").eq(volumes(pod)) || !read_back("Image").eq([pod.image.clone()]) {
        return Err(differs());
    }

    if !environment.get("USER_PORTS").is_some_and(|ports| forwards_agent(ports)) {
        return Err(leg("the agent's port in USER_PORTS"));
    }
    let ports = all("Container", "PublishPort");
    // three parts: the two-part form publishes on every interface
    if ports.iter().any(|port| !port.starts_with("127.0.0.1:") || port.split(':').count() != 3) {
        return Err(leg("127.0.0.1 before a published port"));
    }
    let agent = format!("127.0.0.1:{}:{}/tcp", pod.ports.agent, guest_port::AGENT);
    if ports.contains(&agent.as_str()) { Ok(()) } else { Err(leg("the agent's published port")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::render::tests::sample, *};

    #[test]
    fn it_is_the_same_each_time_and_the_password_is_no_argument() {
        let pod = sample("$HOME %h", "hunter2");
        let text = render_quadlet(&pod).unwrap();
        assert_eq!(*text, *render_quadlet(&pod).unwrap());
        for line in [
            r#"Environment="USERNAME=$$HOME %%h""#,
            r#"Environment="USER_PORTS=8765""#,
            "PublishPort=127.0.0.1:18765:8765/tcp",
            "Volume=/home/a b#é$$x/oem:/oem:Z",
            "AddDevice=/dev/kvm",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {}", *text);
        }
        let container = text.split("[Service]").next().unwrap();
        assert!(!container.contains("hunter2"), "what stands there ends in podman's arguments");
        assert!(entries(&text).any(|entry| entry == ("Service", "Environment", "\"PASSWORD=hunter2\"")));
    }

    #[test]
    fn each_broken_leg_is_named() {
        let pod = sample("a", "b");
        let good = render_quadlet(&pod).unwrap();
        check(&good, &pod).unwrap();
        let wide = good.replace("127.0.0.1:3390", "0.0.0.0:3390");
        assert!(matches!(check(&wide, &pod), Err(EmitError::Leg { what: "127.0.0.1 before a published port", .. })));
        let closed = good.replace("PublishPort=127.0.0.1:18765:8765/tcp\n", "");
        assert!(matches!(check(&closed, &pod), Err(EmitError::Leg { what: "the agent's published port", .. })));
        for (from, to) in [("USER_PORTS=8765", "USER_PORTS=445"), ("PASSWORD=b", "PASSWORD=c"), (":/oem:Z", ":/oem")] {
            let broken = good.replace(from, to);
            assert!(matches!(check(&broken, &pod), Err(EmitError::ReadsBackDifferently { .. })), "{from}");
        }
    }

    #[test]
    fn what_a_volume_cannot_carry_is_refused() {
        let mut pod = sample("a", "b");
        pod.storage = "/a:b".into();
        assert!(matches!(render_quadlet(&pod), Err(EmitError::Colon { .. })));
        pod.storage = "/a\nPrivileged=true".into();
        assert!(matches!(render_quadlet(&pod), Err(EmitError::Unprintable { code: 10, .. })));
    }

    proptest! {
        #[test]
        fn every_text_comes_back_or_is_refused(user in any::<String>(), password in any::<String>()) {
            match render_quadlet(&sample(&user, &password)) {
                // that they come back equal is what rendering itself checks
                Ok(text) => prop_assert_eq!(entries(&text).filter(|entry| entry.1 == "Environment").count(), 7),
                Err(error) => prop_assert!(matches!(error, EmitError::Unprintable { .. }), "{:?}", error),
            }
        }
    }
}
