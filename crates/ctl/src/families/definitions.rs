//! Definitions, out and in, and feature flags.

use crate::command::{Call, Column, Command, Group, LOOKING, MANY, atom, listing_of, plain};
use crate::failure::{DATA, Failure, UNAVAILABLE, USAGE};
use crate::options::{Flag, Follows};
use crate::output::Output;
use serde_json::Value;
use std::path::Path;

const FORMAT: Flag = Flag {
    name: "format",
    letter: None,
    value: Follows::Text,
    default: "json",
    about: "json; the Erlang form is not written or read",
};
const FLAGS: &[Column] = &[
    plain("name"),
    atom("state"),
    atom("stability"),
    atom("provided_by"),
    plain("desc"),
    plain("doc_url"),
];
const OPT_IN: &[Flag] = &[
    Flag {
        name: "opt-in",
        letter: None,
        value: Follows::Switch,
        default: "",
        about: "enables experimental flags as well",
    },
    Flag {
        name: "experimental",
        letter: None,
        value: Follows::Switch,
        default: "",
        about: "as --opt-in",
    },
];

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("export_definitions", Group::Definitions, (1, 1), export)
        .told(
            "<file_path | \"-\"> [--format <json | erlang>] [--timeout <timeout>]",
            "Exports definitions in JSON or compressed Erlang Term Format.",
        )
        .flags(&[FORMAT])
        .calls("GET /api/definitions"),
    Command::new("import_definitions", Group::Definitions, (0, 1), import)
        .told(
            "<file_path | \"-\"> [--format <json | erlang>] [--skip-if-unchanged] [--timeout <timeout>]",
            "Imports definitions in JSON or compressed Erlang Term Format.",
        )
        .flags(&[
            FORMAT,
            Flag {
                name: "skip-if-unchanged",
                letter: None,
                value: Follows::Switch,
                default: "",
                about: "accepted; an import that changes nothing is cheap",
            },
        ])
        .calls("POST /api/definitions"),
    Command::new("enable_feature_flag", Group::FeatureFlags, (1, 1), enable_flag)
        .told(
            "<all | feature_flag>",
            "Enables a feature flag or all supported feature flags on the target node",
        )
        .flags(OPT_IN)
        .calls("GET /api/feature-flags; PUT /api/feature-flags/{name}/enable"),
    Command::new("list_feature_flags", Group::FeatureFlags, (0, MANY), list_flags)
        .told("[<column> ...] [--timeout <timeout>]", "Lists feature flags")
        .of(LOOKING)
        .banner("Listing feature flags ...")
        .calls("GET /api/feature-flags")
        .table(FLAGS, &["name", "state"]),
    Command::new("list_deprecated_features", Group::FeatureFlags, (0, MANY), list_deprecated)
        .told("[--used] [<column> ...]", "Lists deprecated features")
        .of(LOOKING)
        .flags(&[Flag {
            name: "used",
            letter: None,
            value: Follows::Switch,
            default: "",
            about: "lists only those that are in use",
        }])
        .banner("Listing deprecated features ...")
        .calls("GET /api/deprecated-features[/used]")
        .table(
            &[
                plain("name"),
                atom("deprecation_phase"),
                atom("provided_by"),
                plain("desc"),
                plain("doc_url"),
            ],
            &["name", "deprecation_phase"],
        ),
];

fn check_format(call: &Call<'_>) -> Result<(), Failure> {
    match call.flag("format").as_str() {
        "json" => Ok(()),
        other => {
            let text = format!("Bad argument: format {other} is not supported, json is");
            Err(Failure::argument(DATA, text))
        }
    }
}

fn export(call: &mut Call<'_>) -> Result<Output, Failure> {
    check_format(call)?;
    let target = call.word(0);
    if target == "-" {
        let definitions = call.get(&["definitions"])?;
        return Ok(Output::Raw(definitions.to_string()));
    }
    let parent = Path::new(&target).parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        let text = format!("Bad argument: Directory {} does not exist", parent.display());
        return Err(Failure::argument(DATA, text));
    }
    call.say(&format!("Exporting definitions in JSON to a file at \"{target}\" ..."));
    let definitions = call.get(&["definitions"])?;
    crate::file::write_private(Path::new(&target), definitions.to_string().as_bytes())
        .map_err(|error| Failure::new(DATA, format!("{target} cannot be written: {error}")))?;
    Ok(Output::Nothing)
}

fn import(call: &mut Call<'_>) -> Result<Output, Failure> {
    check_format(call)?;
    let source = call.words.first().filter(|source| *source != "-").cloned();
    let bytes = match source {
        Some(source) => {
            if !Path::new(&source).is_file() {
                let text = format!("Bad argument: File {source} does not exist");
                return Err(Failure::argument(DATA, text));
            }
            call.say(&format!("Importing definitions in JSON from a file at \"{source}\" ..."));
            crate::file::read(Path::new(&source))
                .map_err(|error| Failure::new(DATA, format!("{source} cannot be read: {error}")))?
        }
        None => {
            call.say("Importing definitions in JSON from standard input ...");
            call.whole_input()?
        }
    };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let definitions: Value = serde_json::from_slice(bytes).map_err(|error| {
        Failure::new(DATA, format!("Failed to deserialise input (format: JSON) (error: {error})"))
    })?;
    call.send("POST", &["definitions"], Some(&definitions))?;
    let text = "Successfully started definition import. This process is asynchronous and can take some time.";
    Ok(Output::Note(text.to_owned()))
}

fn flags(call: &mut Call<'_>) -> Result<Vec<Value>, Failure> {
    match call.get(&["feature-flags"])? {
        Value::Array(flags) => Ok(flags),
        _ => Ok(Vec::new()),
    }
}

fn enable_flag(call: &mut Call<'_>) -> Result<Output, Failure> {
    let name = call.word(0);
    let known = flags(call)?;
    let names = known.iter().filter_map(|flag| flag["name"].as_str());
    let wanted: Vec<&str> = match name.as_str() {
        "all" => {
            call.say("Enabling all feature flags ...");
            names.collect()
        }
        name => {
            call.say(&format!("Enabling feature flag \"{name}\" ..."));
            names.filter(|known| *known == name).collect()
        }
    };
    if wanted.is_empty() && name != "all" {
        let text = format!("This feature flag is not supported by node {}", call.node);
        return Err(Failure::new(USAGE, text));
    }
    for flag in wanted {
        let reply = call.ask("PUT", &crate::api::path(&["feature-flags", flag, "enable"]), None)?;
        if !reply.is_success() {
            return Err(Failure { code: UNAVAILABLE, ..call.refusal(&reply) });
        }
    }
    Ok(Output::Nothing)
}

fn list_flags(call: &mut Call<'_>) -> Result<Output, Failure> {
    let flags = flags(call)?;
    listing_of(call, &flags)
}

fn list_deprecated(call: &mut Call<'_>) -> Result<Output, Failure> {
    let features = match call.options.has("used") {
        true => call.get(&["deprecated-features", "used"])?,
        false => call.get(&["deprecated-features"])?,
    };
    listing_of(call, features.as_array().map_or(&[][..], Vec::as_slice))
}
