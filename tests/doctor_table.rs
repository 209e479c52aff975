//! The table of causes: what `pod doctor` says of evidence. That real breakage gives such evidence, `doctor.rs` shows.

use std::time::Duration;

use podlink::{
    compose::{MergedLegs, Origin},
    host::{
        EngineKind, GuestOs, Seen,
        doctor::{
            AgentEvidence, Asked, EngineEvidence, Evidence, ExecEvidence, FileFault, FileKind, LegsEvidence, PortOwner,
            Report, Status, Subject, Tool, Try, judge,
        },
        engine::{Container, ContainerState, Inside, NetworkMode},
        ports::Owner,
    },
    protocol::Health,
};

use crate::support::fake::health;

/// A pod in podman that runs and whose every check is well, but for the port, which is still to be said.
fn running(tried: Try) -> Evidence {
    let legs =
        MergedLegs { user_ports: Some(("8765".into(), Origin::Compose)), published: true, ..MergedLegs::default() };
    Evidence {
        pod: Subject {
            name: "lab".into(),
            dir: "/pods/lab".into(),
            engine: EngineKind::Podman,
            guest: GuestOs::Windows,
            port: 18765,
            clock_tolerance: Duration::from_secs(2),
        },
        engine: EngineEvidence::Container {
            program: Asked::Answer(Tool { name: "/usr/bin/podman".into(), version: "4.3.1".into() }),
            front_end: Asked::Answer(Tool { name: "podman-compose".into(), version: "1.0.3".into() }),
            container: Asked::Answer(Some(container(ContainerState::Running))),
            inside: Some(Inside { qemu: true, forward: true, mode: Some(NetworkMode::Slirp) }),
        },
        files: vec![],
        guest_agent: None,
        token: Ok(()),
        legs: Some(LegsEvidence::Read(legs)),
        owner: PortOwner::Ours(Owner::Process { name: "conmon".into(), pid: 7 }),
        tries: vec![tried],
        agent: None,
        clock: None,
    }
}

fn container(state: ContainerState) -> Container {
    Container {
        id: "0123456789ab".into(),
        state,
        running_for: Some(Duration::from_hours(1)),
        published: vec!["127.0.0.1:18765".into()],
        user_ports: Some("8765".into()),
        network: None,
    }
}

fn health_of(stage: &str) -> Health {
    serde_json::from_str(&health("a", stage)).unwrap()
}

fn well() -> Evidence {
    let who = serde_json::from_str(
        r#"{"user":"Docker","session_id":1,"interactive":true,"elevated":true,"agent_id":"a","version":"0.1.0","limits":{}}"#,
    );
    let exec = ExecEvidence::Ran { rc: 0, took: Duration::from_millis(9) };
    Evidence {
        agent: Some(AgentEvidence { whoami: Ok(Some(who.unwrap())), exec: Asked::Answer(exec), clock: None }),
        clock: Some(0.5),
        ..running(Try::Answered(Seen::Ready(health_of("ready"))))
    }
}

/// Changes what the engine said.
fn engine(evidence: &mut Evidence, change: impl FnOnce(&mut Asked<Option<Container>>, &mut Option<Inside>)) {
    let EngineEvidence::Container { container, inside, .. } = &mut evidence.engine else { panic!("a local pod") };
    change(container, inside);
}

fn with_state(state: ContainerState) -> Evidence {
    let mut evidence = running(Try::Refused);
    evidence.owner = PortOwner::Nobody;
    engine(&mut evidence, |asked, inside| {
        *asked = Asked::Answer((state != ContainerState::Absent).then(|| container(state)));
        *inside = None;
    });
    evidence
}

fn with_container(tried: Try, change: impl FnOnce(&mut Container, &mut Option<Inside>)) -> Evidence {
    let mut evidence = running(tried);
    engine(&mut evidence, |asked, inside| {
        let Asked::Answer(Some(container)) = asked else { panic!("no container") };
        change(container, inside);
    });
    evidence
}

fn with_legs(tried: Try, change: impl FnOnce(&mut MergedLegs)) -> Evidence {
    let mut evidence = running(tried);
    let Some(LegsEvidence::Read(legs)) = &mut evidence.legs else { panic!("no legs") };
    change(legs);
    evidence
}

fn changed(mut evidence: Evidence, change: impl FnOnce(&mut Evidence)) -> Evidence {
    change(&mut evidence);
    evidence
}

fn status(report: &Report, name: &str) -> Status {
    report.checks.iter().find(|check| check.name == name).unwrap().status
}

#[test]
fn all_well_is_well() {
    let report = judge(&well());
    assert!(report.ok && report.fix.is_none(), "{report:?}");
    assert_eq!(report.verdict, "all is well: the pod lab serves calls");
    let names: Vec<&str> = report.checks.iter().map(|check| check.name).collect();
    assert_eq!(
        names,
        [
            "engine",
            "compose",
            "files",
            "legs",
            "owner",
            "container",
            "published",
            "port",
            "version",
            "token",
            "exec",
            "clock"
        ]
    );
    assert!(report.checks.iter().all(|check| check.status == Status::Ok), "{report:?}");
}

/// Each broken thing: the check that fails, what the verdict says, and the fix that it names.
#[test]
fn the_table_of_causes() {
    let nat = |_: &mut Container, inside: &mut Option<Inside>| {
        *inside = Some(Inside { qemu: true, forward: false, mode: Some(NetworkMode::Nat) });
    };
    let docker = |evidence: &mut Evidence| evidence.pod.engine = EngineKind::Docker;
    let foreign = |status, what: &str| Try::Answered(Seen::Foreign { status: Some(status), what: what.into() });
    let python = || PortOwner::Other(Owner::Process { name: "python3".into(), pid: 4711 });
    let agent = |evidence: &mut Evidence, exec| evidence.agent.as_mut().unwrap().exec = exec;
    let table: Vec<(&str, Evidence, &str, &[&str])> = vec![
        (
            "no engine",
            changed(with_state(ContainerState::Absent), |evidence| {
                evidence.engine = EngineEvidence::Container {
                    program: Asked::Failed("podman is not installed".into()),
                    front_end: Asked::Skipped,
                    container: Asked::Skipped,
                    inside: None,
                };
            }),
            "engine",
            &["podman is not installed", "`podlink setup --pod lab --engine …`"],
        ),
        (
            "engine does not answer",
            changed(running(Try::Refused), |evidence| {
                engine(evidence, |asked, inside| {
                    *asked = Asked::Failed("cannot connect to the daemon".into());
                    *inside = None;
                });
            }),
            "container",
            &["cannot connect to the daemon"],
        ),
        (
            "no front end",
            changed(with_state(ContainerState::Absent), |evidence| {
                let EngineEvidence::Container { front_end, .. } = &mut evidence.engine else { panic!() };
                *front_end = Asked::Failed("no `podman-compose`".into());
            }),
            "compose",
            &["no `podman-compose`", "install podman-compose"],
        ),
        ("absent", with_state(ContainerState::Absent), "container", &["no container", "`podlink pod up --pod lab`"]),
        ("created", with_state(ContainerState::Created), "container", &["never started", "podman logs 0123456789ab"]),
        (
            "exited",
            with_state(ContainerState::Exited { code: Some(137) }),
            "container",
            &["ended with code 137", "podman logs", "pod up"],
        ),
        (
            "paused",
            changed(with_state(ContainerState::Paused), |e| e.tries = vec![Try::Silent]),
            "container",
            &["paused", "`podlink pod resume --pod lab`"],
        ),
        (
            "paused under docker",
            changed(with_state(ContainerState::Paused), |e| {
                docker(e);
                e.owner = PortOwner::Unknown(Owner::User { uid: 0 });
                e.tries = vec![Try::Silent];
            }),
            "container",
            &["paused", "pod resume"],
        ),
        ("stopping", with_state(ContainerState::Stopping), "container", &["going down"]),
        (
            "taken while down",
            changed(with_state(ContainerState::Created), |e| {
                e.owner = python();
                e.tries = vec![foreign(404, "a web page")];
            }),
            "owner",
            &["port 18765 is taken by python3 (pid 4711)", "--agent-port"],
        ),
        (
            "taken by another user's",
            changed(with_state(ContainerState::Absent), |e| {
                e.owner = PortOwner::Unknown(Owner::User { uid: 0 });
                e.tries = vec![Try::Silent];
            }),
            "owner",
            &["taken by a process of user 0"],
        ),
        (
            "host's leg not in the file",
            changed(with_legs(Try::Refused, |legs| legs.published = false), |e| {
                e.owner = PortOwner::Nobody;
                engine(e, |asked, _| {
                    let Asked::Answer(Some(c)) = asked else { panic!() };
                    c.published.clear();
                });
            }),
            "legs",
            &["the host's leg is missing", "`- \"127.0.0.1:18765:8765/tcp\"`", "ports:", "pod up"],
        ),
        (
            "host's leg not in the container",
            with_container(Try::Refused, |c, _| c.published.clear()),
            "published",
            &["does not publish", "older file", "pod down"],
        ),
        (
            "published under another port",
            with_container(Try::Refused, |c, _| c.published = vec!["127.0.0.1:9".into()]),
            "published",
            &["does not publish"],
        ),
        (
            "guest's leg not in the file, podman",
            changed(with_legs(Try::Refused, |legs| legs.user_ports = None), |e| {
                engine(e, |asked, inside| {
                    let Asked::Answer(Some(c)) = asked else { panic!() };
                    c.user_ports = None;
                    inside.as_mut().unwrap().forward = false;
                });
            }),
            "legs",
            &["the guest's leg is missing", "network mode slirp", "`USER_PORTS: \"8765\"`", "environment:"],
        ),
        (
            "guest's leg not in the file, docker",
            changed(with_legs(Try::Reset, |legs| legs.user_ports = None), |e| {
                docker(e);
                engine(e, |asked, inside| {
                    let Asked::Answer(Some(c)) = asked else { panic!() };
                    c.user_ports = None;
                    *inside = None;
                });
            }),
            "legs",
            &["the guest's leg is missing", "`USER_PORTS: \"8765\"`"],
        ),
        (
            "guest's leg overridden",
            changed(with_legs(Try::Refused, |legs| legs.user_ports = Some(("445".into(), Origin::Override))), |e| {
                engine(e, |asked, _| {
                    let Asked::Answer(Some(c)) = asked else { panic!() };
                    c.user_ports = Some("445".into());
                });
            }),
            "legs",
            &["compose.override.yaml is \"445\"", "`USER_PORTS: \"8765,445\"`"],
        ),
        (
            "guest's leg with blanks",
            changed(
                with_legs(Try::Refused, |legs| legs.user_ports = Some(("8765 445".into(), Origin::Override))),
                |e| {
                    engine(e, |asked, _| {
                        let Asked::Answer(Some(c)) = asked else { panic!() };
                        c.user_ports = Some("8765 445".into());
                    });
                },
            ),
            "legs",
            &["\"8765 445\"", "`USER_PORTS: \"8765,445\"`"],
        ),
        (
            "guest's leg not in the container",
            with_container(Try::Refused, |c, inside| {
                c.user_ports = None;
                inside.as_mut().unwrap().forward = false;
            }),
            "port",
            &["made without the agent's port in USER_PORTS", "pod down"],
        ),
        (
            "forward not there",
            with_container(Try::Refused, |_, inside| inside.as_mut().unwrap().forward = false),
            "port",
            &["nothing in the container forwards", "podman logs"],
        ),
        (
            "no QEMU",
            with_container(Try::Closed, |_, inside| *inside = Some(Inside { qemu: false, forward: false, mode: None })),
            "port",
            &["no QEMU runs", "pod restart"],
        ),
        (
            "no network",
            with_container(Try::Refused, |c, _| c.network = Some("N".into())),
            "port",
            &["NETWORK is N", "--network"],
        ),
        (
            "agent on the guest's loopback, slirp",
            running(Try::Reset),
            "port",
            &["loopback", "network mode slirp", "--listen 0.0.0.0:8765"],
        ),
        (
            "the same, closed, not seen from inside",
            with_container(Try::Closed, |_, inside| *inside = None),
            "port",
            &["loopback", "NETWORK not set"],
        ),
        (
            "the same, NAT",
            with_container(Try::Refused, nat),
            "port",
            &["loopback", "network mode NAT", "--listen 0.0.0.0:8765"],
        ),
        ("engine's proxy gone", running(Try::Refused), "port", &["nothing listens there", "pod restart"]),
        (
            "docker's proxy gone",
            changed(with_container(Try::Refused, |_, inside| *inside = None), docker),
            "port",
            &["docker says", "pod restart"],
        ),
        ("firewall", running(Try::Silent), "port", &["its firewall drops port 8765", "netsh advfirewall"]),
        (
            "firewall of Linux",
            changed(running(Try::Silent), |e| e.pod.guest = GuestOs::Linux),
            "port",
            &["firewall", "ufw allow 8765/tcp"],
        ),
        ("firewall, NAT", with_container(Try::ConnectTimedOut, nat), "port", &["firewall"]),
        (
            "still booting",
            with_container(Try::Silent, |c, _| c.running_for = Some(Duration::from_secs(30))),
            "port",
            &["still booting, or its firewall", "wait-ready", "netsh"],
        ),
        (
            "no token",
            changed(running(Try::Answered(Seen::NotReady(health_of("waiting_for_token")))), |_| {}),
            "port",
            &["waits for its token", r"C:\OEM\agent_token.txt"],
        ),
        (
            "installing",
            running(Try::Answered(Seen::NotReady(health_of("installing")))),
            "port",
            &[r"waits for C:\podlink\state\install.done", "wait-ready"],
        ),
        (
            "install failed",
            running(Try::Answered(Seen::NotReady(health_of("install_failed")))),
            "port",
            &["installation failed", "install.log"],
        ),
        (
            "other token",
            running(Try::Answered(Seen::TokenMismatch(health_of("ready")))),
            "token",
            &["token mismatch", r"C:\OEM\agent_token.txt"],
        ),
        (
            "other token on a stranger's port",
            changed(with_state(ContainerState::Absent), |e| {
                e.owner = python();
                e.tries = vec![Try::Answered(Seen::TokenMismatch(health_of("ready")))];
            }),
            "owner",
            &["taken by python3"],
        ),
        (
            "an agent without a token on a stranger's port",
            changed(with_state(ContainerState::Absent), |e| {
                e.owner = python();
                e.tries = vec![Try::Answered(Seen::NotReady(health_of("waiting_for_token")))];
            }),
            "owner",
            &["taken by python3"],
        ),
        (
            "foreign in the guest",
            running(foreign(404, "a web page")),
            "port",
            &["another program answers (a web page)", "8765 in the guest"],
        ),
        (
            "peer refused",
            running(foreign(403, "an agent that refuses to answer this host (forbidden_peer)")),
            "port",
            &["forbidden_peer", "--allow-peer"],
        ),
        (
            "winpodx",
            running(foreign(
                200,
                "the health of an agent of another kind (for winpodx' the pod's setting is `agent: winpodx`)",
            )),
            "port",
            &["`agent: winpodx`", "pod.yaml"],
        ),
        (
            "another protocol",
            changed(well(), |e| {
                e.tries = vec![Try::Answered(Seen::Ready(Health { protocol: 2, ..health_of("ready") }))];
            }),
            "version",
            &["protocol 2", "copy this podlink"],
        ),
        (
            "whoami refused",
            changed(well(), |e| {
                e.agent.as_mut().unwrap().whoami = Err(("it said no".into(), Some("ask again".into())));
            }),
            "token",
            &["it said no: ask again"],
        ),
        (
            "exec fails",
            changed(well(), |e| agent(e, Asked::Failed("no shell".into()))),
            "exec",
            &["cannot run a script: no shell", "PowerShell"],
        ),
        (
            "exec ends badly",
            changed(well(), |e| agent(e, Asked::Answer(ExecEvidence::Ran { rc: 3, took: Duration::ZERO }))),
            "exec",
            &["code 3"],
        ),
        (
            "host has no token",
            changed(well(), |e| {
                e.token = Err("gone".into());
                e.agent = None;
                e.files = vec![FileFault { path: "/pods/lab/agent_token.txt".into(), kind: FileKind::Missing }];
            }),
            "files",
            &["/pods/lab/agent_token.txt is missing", "`podlink setup --pod lab`"],
        ),
        (
            "wide file",
            changed(well(), |e| {
                e.files = vec![FileFault {
                    path: "/pods/lab/pod.yaml".into(),
                    kind: FileKind::Wide { mode: 0o644, wanted: 0o600 },
                }];
            }),
            "files",
            &["mode 0644", "`chmod 600 /pods/lab/pod.yaml`"],
        ),
        (
            "stale copy",
            changed(well(), |e| {
                e.files = vec![FileFault { path: "/pods/lab/oem/agent_token.txt".into(), kind: FileKind::OtherToken }];
            }),
            "files",
            &["no copy of the pod's token", "stages it anew"],
        ),
        (
            "works now, not after the next up",
            changed(well(), |e| e.legs = Some(LegsEvidence::Missing)),
            "legs",
            &["compose.yaml is missing", "podlink setup"],
        ),
        (
            "override does not read",
            changed(well(), |e| e.legs = Some(LegsEvidence::Unreadable(Origin::Override))),
            "legs",
            &["compose.override.yaml does not read", "mend /pods/lab/compose.override.yaml"],
        ),
    ];
    let mut wrong = Vec::new();
    for (name, evidence, check, said) in &table {
        let report = judge(evidence);
        let fix = report.fix.clone().unwrap_or_default();
        if report.ok || status(&report, check) != Status::Failed || fix.is_empty() || !report.verdict.ends_with(&fix) {
            wrong.push(format!("{name}: {report:#?}"));
        }
        for part in said.iter().filter(|part| !report.verdict.contains(**part)) {
            wrong.push(format!("{name}: no {part:?} in {:?}", report.verdict));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_works_and_should_be_seen_to_is_a_warning() {
    let nat_without_list = changed(well(), |evidence| {
        let Some(LegsEvidence::Read(legs)) = &mut evidence.legs else { panic!() };
        legs.user_ports = None;
        engine(evidence, |asked, inside| {
            let Asked::Answer(Some(container)) = asked else { panic!() };
            container.user_ports = None;
            *inside = Some(Inside { qemu: true, forward: false, mode: Some(NetworkMode::Nat) });
        });
    });
    let wide = changed(well(), |evidence| {
        engine(evidence, |asked, _| {
            let Asked::Answer(Some(container)) = asked else { panic!() };
            container.published = vec!["0.0.0.0:18765".into()];
        });
    });
    let ssh = PortOwner::Other(Owner::Process { name: "ssh".into(), pid: 9 });
    for (evidence, check, said) in [
        (changed(well(), |e| e.clock = Some(-7200.0)), "clock", "7200 s behind"),
        (
            changed(well(), |e| {
                let busy = ExecEvidence::NoSlot("every slot is taken".into());
                e.agent.as_mut().unwrap().exec = Asked::Answer(busy);
            }),
            "exec",
            "its agent is busy: all slots for calls are taken at this moment: `podlink pod ps --pod lab` shows what runs",
        ),
        (changed(well(), |e| e.clock = Some(3.0)), "clock", "w32tm"),
        (changed(well(), |e| e.clock = Some(3600.0)), "clock", "takes the machine's clock for local time"),
        (
            changed(well(), |e| {
                e.clock = Some(-7200.0);
                let Some(AgentEvidence { whoami: Ok(Some(whoami)), .. }) = &mut e.agent else { panic!() };
                whoami.features = vec!["system.time".into()];
            }),
            "clock",
            "podlink pod time-sync --pod lab",
        ),
        (
            changed(well(), |e| {
                e.tries = vec![Try::Answered(Seen::Ready(Health { version: "9".into(), ..health_of("ready") }))];
            }),
            "version",
            "version 9",
        ),
        (nat_without_list, "legs", "USER_PORTS"),
        (wide, "published", "open to the network"),
        (changed(well(), |e| e.owner = ssh), "owner", "ssh (pid 9)"),
    ] {
        let report = judge(&evidence);
        assert!(report.ok && report.verdict.starts_with("the pod lab works, but"), "{report:?}");
        assert_eq!(status(&report, check), Status::Warning, "{report:?}");
        assert!(report.verdict.contains(said), "{}", report.verdict);
    }
}

/// Later checks say why they were not made.
#[test]
fn nothing_is_claimed_of_what_was_not_reached() {
    let report = judge(&with_state(ContainerState::Absent));
    for name in ["published", "version", "token", "exec", "clock"] {
        assert_eq!(status(&report, name), Status::Skipped, "{name}");
    }
}
