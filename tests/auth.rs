//! Who is let in: peer, Host, Origin, token, and the order in which they are looked at.

use std::time::Duration;

use podlink::token::Token;
use serde_json::json;

use crate::support::{Agent, Http, Port, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// Known, unknown and odd ones; none is `/health`.
const PATHS: &[&str] =
    &["/whoami", "/exec", "/exec/some-id", "/nothing", "/", "/health/", "//health", "/Health", "/%68ealth", "/apply"];

fn another_token() -> String {
    Token::generate().unwrap().expose().to_string()
}

#[test]
fn without_a_token_every_path_but_health_is_401() {
    let agent = Agent::with(&["--auth-delay", "0"]);
    let wrong = another_token();
    for path in PATHS {
        for method in ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE"] {
            for request in [agent.http(method, path), agent.http(method, path).bearer(&wrong)] {
                let answer = request.send();
                assert_eq!(answer.status, 401, "{method} {path}");
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                if method != "HEAD" {
                    answer.is_error(401, "unauthorized");
                }
            }
        }
    }
    agent.http("OPTIONS", "*").send().is_error(401, "unauthorized");
    // nothing of the rest is looked at before the token
    let broken = agent.http("POST", "/exec").header("Podlink-Protocol", "9").header("X-Request-Id", "a b");
    broken.header("Content-Type", "text/plain").body("{").send().is_error(401, "unauthorized");
}

#[test]
fn a_token_is_given_once_and_whole() {
    let agent = Agent::start();
    let digits = agent.token();
    let with = |value: &str| agent.http("GET", "/whoami").header("Authorization", value);
    for good in ["Bearer", "bearer", "BEARER"] {
        assert_eq!(with(&format!("{good} {digits}")).send().status, 200);
    }
    assert_eq!(with(&format!("Bearer {}", digits.to_uppercase())).send().status, 200);
    for bad in [
        String::new(),
        "Bearer".to_owned(),
        digits.to_owned(),
        format!("Basic {digits}"),
        format!("Bearer {}", &digits[1..]),
        format!("Bearer {digits}00"),
        format!("Bearer {digits},Bearer {digits}"),
    ] {
        with(&bad).send().is_error(401, "unauthorized");
    }
    agent.authorized("GET", "/whoami").bearer(digits).send().is_error(401, "unauthorized");
}

#[test]
fn foreign_hosts_are_refused_on_every_path() {
    let agent = Agent::with(&["--allow-host", "Guest.example", "--allow-host", "10.0.2.15"]);
    let evil =
        ["evil.example:8765", "localhost.evil.example", "10.0.2.16", "0.0.0.0", "127.1", "", "a b", "x@localhost"];
    for path in ["/health", "/whoami", "/exec", "/nothing"] {
        for host in evil {
            agent.authorized("GET", path).replace("Host", host).send().is_error(403, "forbidden_host");
        }
        agent.authorized("GET", path).without("Host").send().is_error(403, "forbidden_host");
        agent.authorized("GET", path).header("Host", "127.0.0.1").send().is_error(403, "forbidden_host");
        let old = agent.authorized("GET", path).without("Host").line(&format!("GET {path} HTTP/1.0"));
        old.send().is_error(403, "forbidden_host");
        // a target in absolute form names a host too
        let absolute = agent.authorized("GET", path).line(&format!("GET http://evil.example{path} HTTP/1.1"));
        absolute.send().is_error(403, "forbidden_host");
        // and before the token
        agent.http("GET", path).replace("Host", "evil.example").send().is_error(403, "forbidden_host");
    }
    let tunnel = agent.authorized("CONNECT", "").line("CONNECT evil.example:80 HTTP/1.1");
    tunnel.send().is_error(403, "forbidden_host");
    for host in [
        "127.0.0.1",
        "127.0.0.1:9999",
        "127.9.9.9",
        "localhost:1",
        "LOCALHOST",
        "localhost.",
        "[::1]",
        "[::1]:8765",
        "guest.example:80",
        "GUEST.EXAMPLE",
        "10.0.2.15:8765",
    ] {
        assert_eq!(agent.http("GET", "/health").replace("Host", host).send().status, 200, "{host}");
    }
    for line in ["GET http://localhost:5/health HTTP/1.1", "GET /health HTTP/1.0"] {
        assert_eq!(agent.http("GET", "").line(line).send().status, 200, "{line}");
    }
}

#[test]
fn web_pages_are_refused() {
    let agent = Agent::start();
    for path in ["/health", "/whoami", "/exec", "/nothing"] {
        for method in ["GET", "POST", "OPTIONS"] {
            for request in [agent.http(method, path), agent.authorized(method, path)] {
                for origin in ["http://evil.example", "null", "http://127.0.0.1:8765", ""] {
                    let preflight = request.clone().header("Access-Control-Request-Method", "POST");
                    let answer = preflight.header("Origin", origin).send();
                    answer.is_error(403, "forbidden_origin");
                    assert!(!answer.headers.iter().any(|(name, _)| name.starts_with("access-control-")));
                }
            }
        }
    }
    // the page's own way around a preflight
    let plain = agent.http("POST", "/exec").header("Content-Type", "text/plain").body(r#"{"script":""}"#);
    plain.send().is_error(401, "unauthorized");
    agent.http("OPTIONS", "/exec").send().is_error(401, "unauthorized");
    // the host comes before the origin
    let both = agent.http("GET", "/health").replace("Host", "evil.example").header("Origin", "http://evil.example");
    both.send().is_error(403, "forbidden_host");
}

#[test]
fn an_allowed_origin_is_let_through_and_still_needs_the_token() {
    let agent = Agent::with(&["--allow-origin", "https://app.example"]);
    let with = |request: Http| request.header("Origin", "https://app.example").send();
    let answer = with(agent.authorized("GET", "/whoami"));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(answer.header("vary"), Some("Origin"));
    with(agent.http("GET", "/whoami")).is_error(401, "unauthorized");
    let other = agent.authorized("GET", "/whoami").header("Origin", "https://app.example:8443");
    other.send().is_error(403, "forbidden_origin");
    let two = agent.authorized("GET", "/whoami").header("Origin", "https://evil.example");
    with(two).is_error(403, "forbidden_origin");
}

#[test]
fn only_admitted_networks_are_served() {
    let agent = Agent::launch_with_token(&["--allow-peer", "10.0.0.0/8"], &[], true);
    for path in ["/health", "/whoami", "/nothing"] {
        agent.authorized("GET", path).send().is_error(403, "forbidden_peer");
        // before anything else
        agent.http("GET", path).replace("Host", "evil.example").send().is_error(403, "forbidden_peer");
    }
}

#[test]
fn a_mapped_address_is_the_address_that_it_maps() {
    let port = Port::reserve();
    // the socket is IPv6, the caller 127.0.0.1: the system shows it as ::ffff:127.0.0.1
    let listen = format!("[::]:{}", port.number());
    let agent = Agent::with(&["--listen", &listen, "--allow-peer", "127.0.0.0/8"]);
    assert_eq!(Http::new(port.number(), "GET", "/whoami").bearer(agent.token()).send().status, 200);
    wait_for("the request's line", PATIENCE, || agent.log().contains("::ffff:127.0.0.1"));
}

#[test]
fn with_a_token_paths_and_methods_are_told() {
    let agent = Agent::start();
    for path in ["/nothing", "/", "/health/", "/Health", "/exec/a/b"] {
        let answer = agent.authorized("GET", path).send();
        let hint = answer.is_error(404, "not_found")["hint"].as_str().unwrap().to_owned();
        for known in ["/health", "/whoami", "/exec"] {
            assert!(hint.contains(known), "{hint}");
        }
    }
    for (method, path, allow) in [
        ("GET", "/exec", "POST"),
        ("PUT", "/exec", "POST"),
        ("POST", "/exec/some-id", "DELETE"),
        ("POST", "/whoami", "GET,HEAD"),
        ("DELETE", "/health", "GET,HEAD"),
        ("OPTIONS", "/health", "GET,HEAD"),
    ] {
        let answer = agent.authorized(method, path).send();
        answer.is_error(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
    assert_eq!(agent.authorized("HEAD", "/exec").send().status, 405, "a HEAD changes nothing");
}

#[test]
fn versions_and_ids_are_checked_after_path_and_method() {
    let agent = Agent::start();
    for path in ["/health", "/whoami"] {
        assert_eq!(agent.authorized("GET", path).header("Podlink-Protocol", "1").send().status, 200);
        for other in ["2", "0", "one", "1.0", ""] {
            let answer = agent.authorized("GET", path).header("Podlink-Protocol", other).send();
            let detail = answer.is_error(400, "protocol_version_mismatch")["detail"].as_str().unwrap();
            assert!(detail.contains(other) && detail.contains('1'), "{detail}");
        }
        let answer = agent.authorized("GET", path).header("X-Request-Id", "my.id_1~-").send();
        assert_eq!((answer.status, answer.header("x-request-id")), (200, Some("my.id_1~-")));
        for bad in ["", "a b", "a/b", "a\"b", &"x".repeat(129)] {
            let answer = agent.authorized("GET", path).header("X-Request-Id", bad).send();
            answer.is_error(400, "bad_request");
            assert_ne!(answer.header("x-request-id"), Some(bad));
        }
    }
    let foreign = |method: &str, path: &str| agent.authorized(method, path).header("Podlink-Protocol", "2").send();
    foreign("GET", "/nothing").is_error(404, "not_found");
    foreign("GET", "/exec").is_error(405, "method_not_allowed");
    let ids = agent.authorized("GET", "/whoami").header("X-Request-Id", "a").header("X-Request-Id", "b");
    ids.send().is_error(400, "bad_request");
    // the version comes before the body
    let body = agent.authorized("POST", "/exec").header("Podlink-Protocol", "2").header("Content-Type", "text/plain");
    body.body("{").send().is_error(400, "protocol_version_mismatch");
    // an id is returned by errors too
    let answer = agent.authorized("POST", "/whoami").header("X-Request-Id", "mine").send();
    assert_eq!((answer.status, answer.header("x-request-id")), (405, Some("mine")));
}

#[test]
fn the_token_is_in_no_log_however_much_is_logged() {
    for format in ["text", "json"] {
        // the harness sets the highest level
        let agent = Agent::launch(&["--log-format", format], &[("RUST_BACKTRACE", "1")]);
        let (token, wrong) = (agent.token(), another_token());
        assert_eq!(agent.authorized("GET", "/whoami?query-secret").send().status, 200);
        let call = agent.authorized("POST", "/exec").header("X-Request-Id", "logged-1");
        assert_eq!(call.json(&json!({"script": "OiBib2R5LXNlY3JldA=="})).send().status, 200);
        agent.authorized("GET", "/whoami").bearer(&wrong).send().is_error(401, "unauthorized");
        agent.http("GET", "/whoami").bearer(&wrong).send().is_error(401, "unauthorized");
        agent.http("GET", "/whoami").header("Authorization", &wrong).send().is_error(401, "unauthorized");
        // what the library refuses by itself is not shown either
        agent.authorized("GET", "/whoami").header("Bro ken", token).send().is_error(400, "bad_request");
        wait_for("all lines", PATIENCE, || agent.log().contains("refused"));
        let log = agent.log();
        assert!(log.contains("logged-1") && log.contains("/whoami") && log.contains("DEBUG"), "{log}");
        for secret in [token, &token.to_uppercase(), &wrong, "query-secret", "OiBib2R5LXNlY3JldA==", "body-secret"] {
            assert!(!log.contains(secret), "{secret} in {log}");
        }
    }
}
