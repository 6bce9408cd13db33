//! The help of `rabbitmqadmin`.

use super::kinds::{CLOSED, DECLARED, DELETED, GET, Kind, LISTS, PUBLISH, PURGED, SHOWN};
use super::settings::OPTIONS;

const SHORT: &str = "rabbitmqadmin [options] subcommand";

fn title(name: &str) -> String {
    format!("\n{name}\n{}\n\n", "=".repeat(name.len()))
}

/// The options.
#[must_use]
pub fn options() -> String {
    let mut text = format!("Usage\n=====\n  {SHORT}\n\nOptions\n=======\n");
    for option in OPTIONS {
        let value =
            if option.value.is_empty() { String::new() } else { format!("={}", option.value) };
        let letter = option.letter.map_or(String::new(), |letter| format!(", -{letter}"));
        let name = format!("--{}{value}{letter}", option.name);
        text.push_str(&format!("{name:<36} {}\n", option.about));
    }
    text.push_str(
        "\nMore Help\n=========\n\nFor more help use the help subcommand:\n\n  rabbitmqadmin help subcommands  # For a \
         list of available subcommands\n  rabbitmqadmin help config       # For help with the configuration file\n",
    );
    text
}

fn stanza(kinds: &[Kind], verb: &str) -> String {
    let line = |kind: &Kind| {
        let needed: Vec<String> = kind
            .needed
            .iter()
            .map(|name| format!("{}=...", name.replace('|', "=... OR ")))
            .collect();
        let optional: Vec<String> =
            kind.optional.iter().map(|(name, _)| format!("{name}=...")).collect();
        let optional = match optional.is_empty() {
            true => String::new(),
            false => format!(" [{}]", optional.join(" ")),
        };
        format!("  {verb}{} {}{optional}\n", kind.name, needed.join(" "))
    };
    kinds.iter().map(line).collect()
}

/// The subcommands.
#[must_use]
pub fn subcommands() -> String {
    let mut text =
        format!("Usage\n=====\n  {SHORT}\n\n  where subcommand is one of:\n{}", title("Display"));
    for list in LISTS {
        text.push_str(&format!("  list {} [<column>...]\n", list.name));
    }
    for shown in SHOWN {
        text.push_str(&format!("  show {} [<column>...]\n", shown.name));
    }
    text.push_str(&title("Object Manipulation"));
    for (kinds, verb) in
        [(DECLARED, "declare "), (DELETED, "delete "), (CLOSED, "close "), (PURGED, "purge ")]
    {
        text.push_str(&stanza(kinds, verb));
    }
    text.push_str(&title("Broker Definitions"));
    text.push_str("  export <file>\n  import <file>\n");
    text.push_str(&title("Publishing and Consuming"));
    text.push_str(&stanza(&[PUBLISH, GET], ""));
    text.push_str(
        "\n  * If payload is not specified on publish, standard input is used\n\n  * If payload_file is not specified \
         on get, the payload will be shown on\n    standard output along with the message metadata\n\n  * If \
         payload_file is specified on get, count must not be set\n",
    );
    text
}

/// The configuration file.
#[must_use]
pub fn configuration() -> String {
    format!(
        "Usage\n=====\n{SHORT}\n{}  A section of the file names a broker; its keys are hostname, port, username, \
         password, vhost,\n  declare_vhost and the other options with _ for -.\n{}  [there]\n  hostname = \
         localhost\n  port = 15672\n  username = guest\n  password = guest\n{}  rabbitmqadmin -c FILE -N there ...\n",
        title("Configuration File"),
        title("Example"),
        title("Use")
    )
}

/// A completion script for bash.
#[must_use]
pub fn completion() -> String {
    let names = |kinds: &[Kind]| kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(" ");
    let lists = LISTS.iter().map(|list| list.name).collect::<Vec<_>>().join(" ");
    let mut text = String::from(
        "_rabbitmqadmin()\n{\n    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" \
         words\n    case \"${prev}\" in\n",
    );
    for (verb, words) in [
        ("list", lists),
        ("show", "overview".to_owned()),
        ("declare", names(DECLARED)),
        ("delete", names(DELETED)),
        ("close", names(CLOSED)),
        ("purge", names(PURGED)),
        ("help", "subcommands config".to_owned()),
    ] {
        text.push_str(&format!("        {verb}) words=\"{words}\" ;;\n"));
    }
    text.push_str(
        "        export|import) COMPREPLY=( $(compgen -f \"${cur}\") ); return 0 ;;\n        *) words=\"list show \
         declare delete close purge import export get publish help\" ;;\n    esac\n    COMPREPLY=( $(compgen -W \
         \"${words}\" -- \"${cur}\") )\n}\ncomplete -F _rabbitmqadmin rabbitmqadmin\n",
    );
    text
}
