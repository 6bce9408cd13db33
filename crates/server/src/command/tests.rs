use super::*;
use crate::order::ORDERS;
use clap::CommandFactory;

fn read(words: &str) -> Result<Command, String> {
    let words = words.split_whitespace().map(OsString::from);
    parse(words).map_err(|error| error.to_string())
}

fn settings(words: &str) -> Settings {
    match read(words) {
        Ok(Command::Serve(settings)) => settings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_commands_are_well_formed() {
    Words::command().debug_assert();
}

#[test]
fn serve_takes_every_setting_as_a_flag() {
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let words = "serve -c f.toml --shards 2 --limits-frame-max=8192 --economy --pin false --port 1 \
                 --pin=true --shards 3 --default-password -x";
    let read = settings(words);
    assert_eq!(read.config.as_deref(), Some("f.toml"));
    assert_eq!(
        read.flags,
        [
            own("--shards", "2"),
            own("--limits-frame-max", "8192"),
            own("--economy", "true"),
            own("--pin", "false"),
            own("--port", "1"),
            own("--pin", "true"),
            own("--shards", "3"),
            own("--default-password", "-x"),
        ]
    );
}

#[test]
fn a_wrong_flag_or_word_names_the_nearest() {
    for (words, hint) in [
        ("serve --shrads 2", "a similar argument exists: '--shards'"),
        ("srve", "a similar subcommand exists: 'serve'"),
        ("user ad x", "'add'"),
        ("user add x --tag y", "a similar argument exists: '--tags'"),
        ("frobnicate", "unrecognized subcommand 'frobnicate'"),
        ("serve now", "unexpected argument 'now'"),
        ("serve --shards", "'--shards <VALUE>'"),
        ("serev", "a similar subcommand exists: 'serve'"),
    ] {
        let text = read(words).unwrap_err();
        assert!(text.contains(hint), "{words}: {text}");
    }
    assert!(!read("policy").unwrap_err().contains("similar"));
}

#[test]
fn the_words_of_a_tool_are_left_as_they_are() {
    for (line, expected) in [
        ("ctl -q list_queues --help -p v", vec!["-q", "list_queues", "--help", "-p", "v"]),
        ("ctl", vec![]),
        ("help ctl", vec!["help"]),
        ("help ctl list_queues", vec!["help", "list_queues"]),
    ] {
        let Command::Ctl { words } = read(line).unwrap() else { panic!("{line}") };
        assert_eq!(words, expected);
    }
}

#[test]
fn help_on_a_load_passes_its_name_on() {
    for (line, expected) in
        [("help perf", &["help"][..]), ("help perf throughput", &["help", "throughput"])]
    {
        let Command::Perf { words } = read(line).unwrap() else { panic!("{line}") };
        assert_eq!(words, expected);
    }
}

#[test]
fn a_number_with_a_dash_is_not_to_be_put_behind_two() {
    let text = read("experiment --pid -1").unwrap_err();
    assert!(text.contains("'-1'") && !text.contains("-- -1"), "{text}");
    assert!(read("vhost add -1").unwrap_err().contains("-- -1"));
}

#[test]
fn an_argument_that_is_no_text_is_named() {
    use std::os::unix::ffi::OsStringExt;
    for before in
        [&["perf", "throughput", "--queue"][..], &["user", "add"], &["serve", "--data-dir"]]
    {
        let words = before.iter().map(OsString::from);
        let last = OsString::from_vec(b"a\xff".to_vec());
        let error = parse(words.chain([last])).unwrap_err();
        let expected =
            format!("the argument \"a\\xFF\" behind {:?} is not UTF-8", before[before.len() - 1]);
        assert!(error.use_stderr() && error.to_string().contains(&expected), "{error}");
    }
}

#[test]
fn every_argument_has_help() {
    fn check(command: &clap::Command) {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    let mut command = Words::command();
    command.build();
    check(&command);
}

#[test]
fn an_order_fills_its_places() {
    for line in [
        "permission set u ^a .* --vhost v .* --json --data-dir d",
        "permission --json --data d set --vhost=w u ^a .* .* --vhost v",
    ] {
        let Command::Order(call) = read(line).unwrap() else { panic!("no order") };
        assert_eq!(call.order.words, "permission set");
        let own = |name: &'static str, value: &str| (name, value.to_owned());
        assert_eq!(
            call.values,
            [
                own("vhost", "v"),
                own("user", "u"),
                own("configure", "^a"),
                own("write", ".*"),
                own("read", ".*"),
            ]
        );
        assert!(call.json);
        assert_eq!(call.settings.flags, [("--data-dir".to_owned(), "d".to_owned())]);
    }
    assert!(read("permission set u").unwrap_err().contains("Usage: lepus permission set"));
    assert!(read("vhost add a b").unwrap_err().contains("Usage: lepus vhost add"));
    assert!(read("user").unwrap_err().contains("set-tags"));
    let help = read("user add").unwrap_err();
    assert!(help.contains("--tags") && help.contains("Example: lepus user add"), "{help}");
    let Command::Order(call) = read("user set-tags u").unwrap() else { panic!("no order") };
    assert_eq!(call.values, [("name", "u".to_owned())]);
}

#[test]
fn every_order_has_help() {
    let top = read("--help").unwrap_err();
    for order in ORDERS {
        let text = read(&format!("{} --help", order.words)).unwrap_err();
        assert!(text.contains(order.example), "{text}");
        assert_eq!(text, read(&format!("help {}", order.words)).unwrap_err());
        let first = order.words.split(' ').next().unwrap();
        assert!(top.contains(&format!("\n  {first}")), "{top}");
    }
}

#[test]
fn other_programs_learn_every_command() {
    let scripts = [Shell::Bash, Shell::Zsh, Shell::Fish].map(completions);
    for setting in crate::config::SETTINGS {
        let name = setting.flag().trim_start_matches('-').to_owned();
        assert!(scripts.iter().all(|script| script.contains(&name)), "{name}");
        assert!(page(&["serve".to_owned()]).unwrap().contains(&name.replace('-', "\\-")), "{name}");
    }
    for order in ORDERS {
        let words: Vec<String> = order.words.split(' ').map(str::to_owned).collect();
        let page = page(&words).unwrap();
        let name = format!("lepus-{}", words.join("-")).replace('-', "\\-");
        assert!(page.contains(&name), "{page}");
    }
    for (name, _) in lepus_perf::SUBCOMMANDS {
        let page = page(&["perf".to_owned(), (*name).to_owned()]).unwrap();
        for option in lepus_perf::options_of(name) {
            let long = option.long;
            assert!(scripts.iter().all(|script| script.contains(long)), "{name} {long}");
            assert!(page.contains(&long.replace('-', "\\-")), "{name} {long}: {page}");
        }
    }
    let name_of = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        page(&words).unwrap().lines().nth(4).unwrap().to_owned()
    };
    assert!(
        name_of(&["serve"]).ends_with("\\- starts the broker and runs it until it is told to stop")
    );
    assert!(name_of(&["vhost"]).ends_with("\\- orders to the running broker: add, delete, list"));
    assert!(page(&["srve".to_owned()]).unwrap_err().contains("`srve`"));
}
