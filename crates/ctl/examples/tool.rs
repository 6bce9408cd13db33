//! Any of the tools over HTTP, against a RabbitMQ or a lepus: `tool localhost:15672 rabbitmqctl list_queues`, as guest.
#![forbid(unsafe_code)]

use lepus_ctl::Program;
use lepus_ctl::http::Http;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let address = words.next().unwrap_or_default();
    let program = words.next().and_then(|name| Program::of(&name));
    let (Some((host, port)), Some(program)) = (address.split_once(':'), program) else {
        eprintln!("tool HOST:PORT PROGRAM [WORD...]");
        return ExitCode::from(64);
    };
    let mut http = Http {
        host: host.to_owned(),
        port: port.parse().unwrap_or(15672),
        user: "guest".to_owned(),
        password: "guest".to_owned(),
        patience: Duration::from_secs(60),
        ..Http::default()
    };
    let words: Vec<String> = words.collect();
    if program == Program::Admin {
        http = lepus_ctl::admin::connection(&words);
    }
    let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut errors = std::io::stderr().lock();
    let code = lepus_ctl::run(program, &words, &mut http, &mut input, &mut out, &mut errors);
    ExitCode::from(code)
}
