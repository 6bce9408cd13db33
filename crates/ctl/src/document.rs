//! `docs/ctl.md`, made of the tables.

use crate::command::{Command, MANY};
use crate::failure::CODES;
use crate::families;
use crate::options::Follows;
use crate::own::PATHS;
use crate::program::PROGRAMS;
use std::fmt::Write;

const BEGIN: &str = "\
# RabbitMQ's command line tools

Started under the name of one of RabbitMQ's tools, or as `lepus ctl …` for `rabbitmqctl`, the binary speaks that tool's
language. The tools reach the running broker over its control socket, which only root and the broker's own user may open:
no password is asked. `rabbitmqadmin` speaks the language of the Python program of RabbitMQ 3 and reaches the management
API over plain HTTP with a user and a password; TLS is not supported there yet.

`crates/ctl` has the tables that this page, the help and the tools are made of; `LEPUS_WRITE_DOCS=1 cargo test -p
lepus-ctl document` writes this page again.

## Rules

- Flags stand anywhere. Everywhere there are `-n/--node NAME` (shown in texts, nothing else), `-p/--vhost`, `-t/--timeout
  SECONDS`, `-q/--quiet` (no banner; the header line stays), `-s/--silent` (no header line either), `--no-table-headers`,
  `--formatter table|json|csv|pretty_table|erlang`, `--help`. Accepted without effect: `-l/--longnames`, `--dry-run`,
  `--erlang-cookie` and other flags about Erlang.
- Banners go to standard output, before the header line and the rows, which are joined by TABs. An empty list has no header.
  With `json` and `csv` there is no banner. Control characters in names are written as octal numbers, such as `\\011`.
- Columns come in the order they are asked in, but for `list_bindings` and `list_consumers`, which keep their own.
- Identifiers of processes (`pid`) look like Erlang's. They are made of the node's and the thing's name: the same
  connection has the same one at every call, and `close_connection` finds it.
- A password that is not on the command line is read from standard input. Messages about a wrong call do not repeat it.

## Exit codes
";

const STATUS: &str = "\
The object of `status` has the keys `os`, `pid`, `product_name`, `product_version`, `rabbitmq_version`, `erlang_version`,
`crypto_lib_version`, `net_ticktime`, `uptime` (seconds), `is_under_maintenance`, `processes` {`limit`, `used`},
`run_queue`, `file_descriptors` {`total_used`, `total_limit`, `sockets_used`, `sockets_limit`},
`vm_memory_calculation_strategy`, `vm_memory_high_watermark_limit` (bytes), `vm_memory_high_watermark_setting` {`relative`} or
{`absolute`}, `disk_free`, `disk_free_limit`, `alarms` [{`resource` `memory` or `disk`, `node`}], `tags` [], `listeners`
[{`node`, `protocol`, `interface` such as `[::]`, `port`, `purpose`}], `memory` {kinds with bytes, `strategy` `rss`,
`allocated` or `erlang`, `total` {`rss`, `allocated`, `erlang`}}, `data_directory`, `raft_data_directory`,
`enabled_plugin_file`, `active_plugins` [], `config_files` [], `log_files` [], `totals` {`connection_count`, `queue_count`,
`virtual_host_count`}.
";

/// The page.
#[must_use]
pub fn markdown() -> String {
    let mut text = BEGIN.to_owned();
    text.push_str("\n| Code | Meaning |\n|---|---|\n");
    for (code, meaning) in CODES {
        // Writing to a String does not fail.
        let _ = writeln!(text, "| {code} | {meaning} |");
    }
    text.push_str("\n`rabbitmqadmin` ends with 0, with 1 for every failure, or with 2 for an unknown option.\n");
    text.push_str("\n## Own paths of the API\n\nWhat RabbitMQ's API has no path for. They are for the control socket.\n");
    text.push_str("\n| Method | Path | Body | Answer | What it does |\n|---|---|---|---|---|\n");
    for own in PATHS {
        let answer = if own.answer.is_empty() { "204" } else { own.answer };
        let _ = writeln!(
            text,
            "| {} | `{}` | {} | {} | {} |",
            own.method,
            cell(own.path),
            cell(own.body),
            cell(answer),
            cell(own.about)
        );
    }
    let _ = write!(text, "\n{STATUS}");
    text.push_str("\n## Expressions that `eval` knows\n\nWhite space outside quotes does not count.\n\n| Text | Meaning |\n|---|---|\n");
    for (known, meaning) in families::KNOWN_EXPRESSIONS {
        let _ = writeln!(text, "| `{}` | {} |", cell(known), cell(meaning));
    }
    let mut commands = families::all();
    commands.sort_by_key(|command| (command.programs[0], command.name));
    for program in PROGRAMS {
        let own: Vec<&Command> =
            commands.iter().copied().filter(|command| command.programs[0] == program).collect();
        if !own.is_empty() {
            let _ = writeln!(text, "\n## `{}`", program.name());
        }
        for command in own {
            describe(&mut text, command);
        }
    }
    let _ = write!(
        text,
        "\n## `rabbitmqadmin`\n\n```text\n{}```\n",
        crate::admin::subcommands().trim_start_matches("Usage\n=====\n")
    );
    text
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn describe(text: &mut String, command: &Command) {
    let _ = writeln!(text, "\n### {}\n", command.name);
    let usage = format!("{} {}", command.name, command.usage);
    let _ = writeln!(text, "`{}`\n", usage.trim_end());
    let _ = writeln!(text, "{}.", command.about.trim_end_matches('.'));
    if command.programs.len() > 1 {
        let others: Vec<String> =
            command.programs[1..].iter().map(|other| format!("`{}`", other.name())).collect();
        let _ = writeln!(text, "Also of {}.", others.join(", "));
    }
    text.push('\n');
    if !command.calls.is_empty() {
        let _ = writeln!(text, "- Calls `{}`.", command.calls);
    }
    if !command.banner.is_empty() {
        let lines: Vec<String> =
            command.banner.trim_end().split('\n').map(|line| format!("`{line}`")).collect();
        let _ = writeln!(text, "- Banner {}", lines.join(", then "));
    }
    if !command.columns.is_empty() {
        let names: Vec<&str> = command.columns.iter().map(|column| column.name).collect();
        match command.words.1 == MANY {
            true => {
                let _ = writeln!(text, "- Columns `{}`.", names.join("`, `"));
                let _ = writeln!(text, "- Shown unasked: `{}`.", command.defaults.join("`, `"));
            }
            false => {
                let _ = writeln!(text, "- Columns `{}`.", command.defaults.join("`, `"));
            }
        }
    }
    for flag in command.flags {
        let letter = flag.letter.map_or(String::new(), |letter| format!("-{letter}/"));
        let value = if flag.value == Follows::Switch { "" } else { " VALUE" };
        let _ = writeln!(text, "- `{letter}--{}{value}`: {}.", flag.name, flag.about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the page lies.
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ctl.md");

    #[test]
    fn the_page_says_what_the_tables_say() {
        let expected = markdown();
        if std::env::var_os("LEPUS_WRITE_DOCS").is_some() {
            std::fs::write(PAGE, &expected).unwrap();
        }
        let found = std::fs::read_to_string(PAGE).unwrap();
        assert!(
            found == expected,
            "docs/ctl.md differs: LEPUS_WRITE_DOCS=1 cargo test -p lepus-ctl document"
        );
    }
}
