//! The operator's orders: one table for the command line, its help and the control socket.
//!
//! An order is one or more words (`user add`), arguments by place and options by name. The command
//! line turns it into one JSON object, the broker answers with another; see [`crate::control`].

/// One order.
#[derive(Debug)]
pub struct Order {
    /// Its words, separated by one space.
    pub words: &'static str,
    /// The arguments in their places.
    pub arguments: &'static [Place],
    /// Options that take a value.
    pub options: &'static [OrderOption],
    /// What it does: one sentence.
    pub about: &'static str,
    /// A call that shows its use, without the leading `lepus`.
    pub example: &'static str,
    /// The order asks for a password, which leaves the command line only as a hash.
    pub password: bool,
}

/// An argument of an order, known by its place.
#[derive(Debug)]
pub struct Place {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Whether it has to be given; only the last ones may be left out.
    pub is_required: bool,
}

/// An option of an order.
#[derive(Debug, PartialEq, Eq)]
pub struct OrderOption {
    /// Name without dashes.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
}

const VHOST: OrderOption = OrderOption { name: "vhost", about: "Virtual host; / when left out" };
const TAGS: OrderOption = OrderOption {
    name: "tags",
    about: "Tags separated by commas, such as administrator,monitoring",
};
/// Present in every order that sets a password.
pub const PASSWORD: OrderOption = OrderOption {
    name: "password",
    about: "The password; when left out it is read from standard input",
};

const fn place(name: &'static str, about: &'static str) -> Place {
    Place { name, about, is_required: true }
}

/// A place that may be left out.
const fn last(name: &'static str, about: &'static str) -> Place {
    Place { is_required: false, ..place(name, about) }
}

const USER: Place = place("user", "The user");

const fn order(
    words: &'static str,
    arguments: &'static [Place],
    options: &'static [OrderOption],
    about: &'static str,
    example: &'static str,
) -> Order {
    Order { words, arguments, options, about, example, password: false }
}

const fn with_password(order: Order) -> Order {
    Order { password: true, ..order }
}

/// All orders, in the order of the help.
pub const ORDERS: &[Order] = &[
    order("status", &[], &[], "Shows what the running broker is and holds.", "status"),
    with_password(order(
        "user add",
        &[place("name", "The new user's name")],
        &[PASSWORD, TAGS],
        "Adds a user, who may do nothing before permissions are set.",
        "user add shop --tags monitoring",
    )),
    order(
        "user delete",
        &[place("name", "The user")],
        &[],
        "Deletes a user and closes the connections it has.",
        "user delete shop",
    ),
    order("user list", &[], &[], "Lists users and their tags.", "user list"),
    with_password(order(
        "user set-password",
        &[place("name", "The user")],
        &[PASSWORD],
        "Sets another password.",
        "user set-password shop",
    )),
    order(
        "user set-tags",
        &[place("name", "The user"), last("tags", "Tags separated by commas; none when left out")],
        &[],
        "Replaces a user's tags; without any they are taken away.",
        "user set-tags shop administrator",
    ),
    order(
        "vhost add",
        &[place("name", "The new virtual host's name")],
        &[OrderOption { name: "description", about: "Text for people" }],
        "Adds a virtual host.",
        "vhost add orders",
    ),
    order(
        "vhost delete",
        &[place("name", "The virtual host")],
        &[],
        "Deletes a virtual host with all that is in it.",
        "vhost delete orders",
    ),
    order("vhost list", &[], &[], "Lists virtual hosts.", "vhost list"),
    order(
        "permission set",
        &[
            USER,
            place("configure", "Which queues and exchanges the user may declare and delete"),
            place("write", "Which ones the user may publish to"),
            place("read", "Which ones the user may consume from"),
        ],
        &[VHOST],
        "Sets what a user may do: three regular expressions over names of queues and exchanges.",
        "permission set shop '^shop' '^shop' '.*' --vhost orders",
    ),
    order(
        "permission delete",
        &[USER],
        &[VHOST],
        "Takes a user's permissions in a virtual host away.",
        "permission delete shop --vhost orders",
    ),
    order("permission list", &[], &[], "Lists permissions.", "permission list"),
    order(
        "permission set-topic",
        &[
            USER,
            place("exchange", "The topic exchange"),
            place("write", "Regular expression over routing keys that the user may publish with"),
            place(
                "read",
                "Regular expression over routing keys that the user may bind queues with",
            ),
        ],
        &[VHOST],
        "Sets which routing keys of a topic exchange a user may use.",
        "permission set-topic shop amq.topic '^shop\\.' '.*'",
    ),
    order(
        "permission delete-topic",
        &[USER, last("exchange", "The topic exchange; all of them when left out")],
        &[VHOST],
        "Takes topic permissions away, of one exchange or of all.",
        "permission delete-topic shop",
    ),
    order("permission list-topic", &[], &[], "Lists topic permissions.", "permission list-topic"),
    order(
        "list queues",
        &[],
        &[VHOST],
        "Lists queues with their messages and consumers.",
        "list queues --vhost orders",
    ),
    order("list exchanges", &[], &[VHOST], "Lists exchanges.", "list exchanges"),
    order(
        "list bindings",
        &[],
        &[VHOST],
        "Lists bindings, those of the default exchange left out.",
        "list bindings",
    ),
    order(
        "list filters",
        &[],
        &[VHOST],
        "Lists where content filters stand: how many, what they take of a message, the dearest.",
        "list filters --vhost orders",
    ),
    order("list connections", &[], &[], "Lists open connections.", "list connections"),
];

/// Whether an order only looks and changes nothing.
#[must_use]
pub fn only_looks(words: &str) -> bool {
    matches!(words, "status" | "topology" | "permission list-topic")
        || words.starts_with("list ")
        || words.ends_with(" list")
}

/// The order with these words.
#[must_use]
pub fn find(words: &str) -> Option<&'static Order> {
    ORDERS.iter().find(|order| order.words == words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_and_shown() {
        for (index, order) in ORDERS.iter().enumerate() {
            assert!(ORDERS[index + 1..].iter().all(|other| other.words != order.words));
            assert!(order.example.starts_with(order.words), "{}", order.words);
            assert_eq!(order.password, order.options.contains(&PASSWORD), "{}", order.words);
        }
    }
}
