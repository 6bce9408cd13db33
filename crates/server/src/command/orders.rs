//! The table of orders as commands: words become commands below each other, places arguments.

use crate::flags::{BrokerFlags, Settings};
use crate::order::{ORDERS, Order, find};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};

/// An order with its words filled in.
#[derive(Debug)]
pub struct OrderCall {
    /// Which one.
    pub order: &'static Order,
    /// Arguments and options by name.
    pub values: Vec<(&'static str, String)>,
    /// Print the answer as JSON.
    pub json: bool,
    /// For finding the control socket.
    pub settings: Settings,
}

impl Subcommand for OrderCall {
    fn augment_subcommands(command: Command) -> Command {
        ORDERS.iter().fold(command, |command, order| match order.words.split_once(' ') {
            None => command.subcommand(leaf(with_broker(order.words), order)),
            Some((first, second)) if command.find_subcommand(first).is_some() => {
                let leaf = leaf(Command::new(second), order);
                command.mut_subcommand(first, |group| group.subcommand(leaf))
            }
            Some((first, second)) => {
                let group = with_broker(first).about(verbs(first)).subcommand_required(true);
                let group = group.arg_required_else_help(true);
                command.subcommand(group.subcommand(leaf(Command::new(second), order)))
            }
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        OrderCall::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        ORDERS.iter().any(|order| order.words.split(' ').next() == Some(name))
    }
}

/// The second words of the orders that begin with `first`.
fn verbs(first: &str) -> String {
    let verbs = ORDERS.iter().filter_map(|order| order.words.split_once(' '));
    let verbs: Vec<&str> =
        verbs.filter(|(group, _)| *group == first).map(|(_, verb)| verb).collect();
    verbs.join(", ")
}

/// What all orders take, before or behind the second word.
fn with_broker(word: &'static str) -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).global(true);
    BrokerFlags::augment_args(Command::new(word).arg(json.help("Prints the answer as JSON")))
}

fn leaf(command: Command, order: &'static Order) -> Command {
    let command = command.about(order.about.trim_end_matches('.'));
    let mut command = command.after_help(format!("Example: lepus {}", order.example));
    let needs = order.arguments.iter().any(|place| place.is_required);
    // Without any words the whole help says more than the names of what is missing.
    command = command.arg_required_else_help(needs);
    for place in order.arguments {
        let arg = Arg::new(place.name).help(place.about).required(place.is_required);
        command = command.arg(arg);
    }
    for option in order.options {
        let arg = Arg::new(option.name).long(option.name).value_name("value");
        command = command.arg(arg.help(option.about).allow_hyphen_values(true));
    }
    command
}

impl FromArgMatches for OrderCall {
    fn from_arg_matches(matches: &ArgMatches) -> Result<OrderCall, clap::Error> {
        let (mut words, mut matches) =
            matches.subcommand().map(|(word, below)| (word.to_owned(), below)).unzip();
        if let Some((word, below)) = matches.and_then(ArgMatches::subcommand) {
            words = words.map(|first: String| format!("{first} {word}"));
            matches = Some(below);
        }
        let order = words.as_deref().and_then(find);
        let (Some(order), Some(matches)) = (order, matches) else {
            return Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand));
        };
        let options = order.options.iter().map(|option| option.name);
        let places = order.arguments.iter().map(|place| place.name);
        let value = |name| Some((name, matches.get_one::<String>(name)?.clone()));
        Ok(OrderCall {
            order,
            values: options.chain(places).filter_map(value).collect(),
            json: matches.get_flag("json"),
            settings: BrokerFlags::from_arg_matches(matches)?.settings(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = OrderCall::from_arg_matches(matches)?;
        Ok(())
    }
}
