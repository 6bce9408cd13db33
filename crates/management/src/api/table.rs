//! All paths below `/api`: the methods of each, what they need, and who answers.

use super::access::Right;
use super::context::Context;
use super::failure::Failure;
use super::objects::{
    attempts, audit, bindings, channels, connections, consumers, ctl, definitions, exchanges,
    features, filters, health, limits, messages, moves, node, overview, parameters, permissions,
    policies, queues, route_test, sessions, shovels, users, vhosts,
};
use super::request::Reply;

/// What answers a request.
pub(crate) type Answer = fn(&Context<'_>) -> Result<Reply, Failure>;

/// A method of a path.
#[derive(Clone, Copy)]
pub(crate) struct Action {
    method: &'static str,
    pub(crate) right: Right,
    pub(crate) answer: Answer,
}

/// A path.
pub(crate) struct Entry {
    /// Parts separated by `/`; one in braces stands for any name.
    pattern: &'static str,
    actions: &'static [Action],
}

impl Entry {
    /// What does this method here.
    pub(crate) fn action(&self, method: &str) -> Option<&'static Action> {
        self.actions.iter().find(|action| action.method == method)
    }

    /// The methods, as a header lists them.
    pub(crate) fn allowed(&self) -> String {
        let mut methods = vec!["OPTIONS"];
        for action in self.actions {
            if action.method == "GET" {
                methods.push("HEAD");
            }
            methods.push(action.method);
        }
        methods.join(", ")
    }

    /// What the names of the pattern stand for, if the path is one of it.
    fn names(&self, parts: &[String]) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut pattern = self.pattern.split('/');
        for part in parts {
            match pattern.next()? {
                name if name.starts_with('{') => names.push(part.clone()),
                word if word == part => {}
                _ => return None,
            }
        }
        pattern.next().is_none().then_some(names)
    }
}

/// The entry of a path, and what its names stand for.
pub(crate) fn find(parts: &[String]) -> Option<(&'static Entry, Vec<String>)> {
    ENTRIES.iter().find_map(|entry| Some((entry, entry.names(parts)?)))
}

const fn get(right: Right, answer: Answer) -> Action {
    Action { method: "GET", right, answer }
}

const fn put(right: Right, answer: Answer) -> Action {
    Action { method: "PUT", right, answer }
}

const fn post(right: Right, answer: Answer) -> Action {
    Action { method: "POST", right, answer }
}

const fn delete(right: Right, answer: Answer) -> Action {
    Action { method: "DELETE", right, answer }
}

use Right::{Administrator, Member, Monitoring, Nothing, Password, Policymaker};

/// Paths with words come before those with names in the same places.
#[rustfmt::skip]
static ENTRIES: &[Entry] = &[
    Entry { pattern: "overview", actions: &[get(Member, overview::overview)] },
    Entry { pattern: "whoami", actions: &[get(Member, overview::who_am_i)] },
    Entry { pattern: "version", actions: &[get(Nothing, overview::version)] },
    Entry { pattern: "extensions", actions: &[get(Member, overview::extensions)] },
    Entry { pattern: "cluster-name", actions: &[get(Member, parameters::get_cluster_name), put(Administrator, parameters::put_cluster_name)] },
    Entry { pattern: "nodes", actions: &[get(Monitoring, node::list)] },
    Entry { pattern: "nodes/{n}", actions: &[get(Monitoring, node::one)] },
    Entry { pattern: "nodes/{n}/memory", actions: &[get(Monitoring, node::memory)] },
    Entry { pattern: "nodes/{n}/memory/relative", actions: &[get(Monitoring, node::memory_relative)] },
    Entry { pattern: "config/effective", actions: &[get(Administrator, node::settings)] },
    Entry { pattern: "rebalance/queues", actions: &[post(Administrator, node::rebalance)] },
    Entry { pattern: "reset", actions: &[delete(Administrator, node::reset)] },
    Entry { pattern: "reset/{n}", actions: &[delete(Administrator, node::reset)] },
    Entry { pattern: "feature-flags", actions: &[get(Member, features::flags)] },
    Entry { pattern: "feature-flags/{f}/enable", actions: &[put(Administrator, features::enable)] },
    Entry { pattern: "deprecated-features", actions: &[get(Member, features::deprecated)] },
    Entry { pattern: "deprecated-features/used", actions: &[get(Member, features::deprecated_used)] },
    Entry { pattern: "definitions", actions: &[get(Administrator, definitions::all), post(Administrator, definitions::import)] },
    Entry { pattern: "definitions/{v}", actions: &[get(Administrator, definitions::of_vhost), post(Administrator, definitions::import_vhost)] },

    Entry { pattern: "connections", actions: &[get(Member, connections::list)] },
    Entry { pattern: "connections/username/{u}", actions: &[get(Member, connections::of_user), delete(Member, connections::close_of_user)] },
    Entry { pattern: "connections/{c}", actions: &[get(Member, connections::one), delete(Member, connections::close)] },
    Entry { pattern: "connections/{c}/channels", actions: &[get(Member, channels::of_connection)] },
    Entry { pattern: "connections/{c}/sessions", actions: &[get(Member, features::none)] },
    Entry { pattern: "channels", actions: &[get(Member, channels::list)] },
    Entry { pattern: "channels/{c}", actions: &[get(Member, channels::one)] },
    Entry { pattern: "consumers", actions: &[get(Member, consumers::list)] },
    Entry { pattern: "consumers/{v}", actions: &[get(Member, consumers::of_vhost)] },

    Entry { pattern: "exchanges", actions: &[get(Member, exchanges::list)] },
    Entry { pattern: "exchanges/{v}", actions: &[get(Member, exchanges::of_vhost)] },
    Entry { pattern: "exchanges/{v}/{x}", actions: &[get(Member, exchanges::one), put(Member, exchanges::declare), delete(Member, exchanges::delete)] },
    Entry { pattern: "exchanges/{v}/{x}/publish", actions: &[post(Member, messages::publish)] },
    Entry { pattern: "exchanges/{v}/{x}/bindings/source", actions: &[get(Member, bindings::from_exchange)] },
    Entry { pattern: "exchanges/{v}/{x}/bindings/destination", actions: &[get(Member, bindings::to_exchange)] },

    Entry { pattern: "queues", actions: &[get(Member, queues::list)] },
    Entry { pattern: "queues/detailed", actions: &[get(Member, queues::list)] },
    Entry { pattern: "queues/{v}", actions: &[get(Member, queues::of_vhost)] },
    Entry { pattern: "queues/quorum/{v}/{q}/status", actions: &[get(Member, queues::members)] },
    Entry { pattern: "queues/{v}/{q}", actions: &[get(Member, queues::one), put(Member, queues::declare), delete(Member, queues::delete)] },
    Entry { pattern: "queues/{v}/{q}/bindings", actions: &[get(Member, bindings::to_queue)] },
    Entry { pattern: "queues/{v}/{q}/contents", actions: &[delete(Member, messages::purge)] },
    Entry { pattern: "queues/{v}/{q}/get", actions: &[post(Member, messages::get)] },
    Entry { pattern: "queues/{v}/{q}/actions", actions: &[post(Administrator, queues::act)] },

    Entry { pattern: "bindings", actions: &[get(Member, bindings::list)] },
    Entry { pattern: "bindings/{v}", actions: &[get(Member, bindings::of_vhost)] },
    Entry { pattern: "bindings/{v}/e/{s}/q/{d}", actions: &[get(Member, bindings::between_exchange_and_queue), post(Member, bindings::bind_queue)] },
    Entry { pattern: "bindings/{v}/e/{s}/e/{d}", actions: &[get(Member, bindings::between_exchanges), post(Member, bindings::bind_exchange)] },
    Entry { pattern: "bindings/{v}/e/{s}/q/{d}/{p}", actions: &[get(Member, bindings::one_to_queue), delete(Member, bindings::unbind_queue)] },
    Entry { pattern: "bindings/{v}/e/{s}/e/{d}/{p}", actions: &[get(Member, bindings::one_to_exchange), delete(Member, bindings::unbind_exchange)] },

    Entry { pattern: "vhosts", actions: &[get(Member, vhosts::list)] },
    Entry { pattern: "vhosts/{v}", actions: &[get(Member, vhosts::one), put(Administrator, vhosts::put), delete(Administrator, vhosts::delete)] },
    Entry { pattern: "vhosts/{v}/connections", actions: &[get(Member, connections::of_vhost)] },
    Entry { pattern: "vhosts/{v}/channels", actions: &[get(Member, channels::of_vhost)] },
    Entry { pattern: "vhosts/{v}/permissions", actions: &[get(Administrator, permissions::of_vhost)] },
    Entry { pattern: "vhosts/{v}/topic-permissions", actions: &[get(Administrator, permissions::topic_of_vhost)] },
    Entry { pattern: "vhosts/{v}/start/{n}", actions: &[post(Administrator, vhosts::start)] },
    Entry { pattern: "vhosts/{v}/deletion/protection", actions: &[post(Administrator, vhosts::protect), delete(Administrator, vhosts::unprotect)] },

    Entry { pattern: "users", actions: &[get(Administrator, users::list)] },
    Entry { pattern: "users/without-permissions", actions: &[get(Administrator, users::without_permissions)] },
    Entry { pattern: "users/bulk-delete", actions: &[post(Administrator, users::delete_several)] },
    Entry { pattern: "users/{u}", actions: &[get(Administrator, users::one), put(Administrator, users::put), delete(Administrator, users::delete)] },
    Entry { pattern: "users/{u}/permissions", actions: &[get(Administrator, permissions::of_user)] },
    Entry { pattern: "users/{u}/topic-permissions", actions: &[get(Administrator, permissions::topic_of_user)] },
    Entry { pattern: "users/{u}/queues", actions: &[get(Administrator, queues::of_user)] },
    Entry { pattern: "auth", actions: &[get(Nothing, features::auth)] },
    Entry { pattern: "auth/attempts/{n}", actions: &[get(Monitoring, attempts::list), delete(Monitoring, attempts::reset)] },
    Entry { pattern: "auth/attempts/{n}/source", actions: &[get(Monitoring, attempts::by_source), delete(Monitoring, attempts::reset_sources)] },
    Entry { pattern: "auth/hash_password/{p}", actions: &[get(Administrator, users::hash)] },
    Entry { pattern: "permissions", actions: &[get(Administrator, permissions::list)] },
    Entry { pattern: "permissions/{v}/{u}", actions: &[get(Administrator, permissions::one), put(Administrator, permissions::put), delete(Administrator, permissions::delete)] },
    Entry { pattern: "topic-permissions", actions: &[get(Administrator, permissions::topic_list)] },
    Entry { pattern: "topic-permissions/{v}/{u}", actions: &[get(Administrator, permissions::topic_one), put(Administrator, permissions::topic_put), delete(Administrator, permissions::topic_delete)] },
    Entry { pattern: "topic-permissions/{v}/{u}/{x}", actions: &[delete(Administrator, permissions::topic_delete_one)] },

    Entry { pattern: "policies", actions: &[get(Member, policies::list)] },
    Entry { pattern: "policies/{v}", actions: &[get(Member, policies::of_vhost)] },
    Entry { pattern: "policies/{v}/{n}", actions: &[get(Member, policies::one), put(Policymaker, policies::set), delete(Policymaker, policies::clear)] },
    Entry { pattern: "operator-policies", actions: &[get(Member, policies::operator_list)] },
    Entry { pattern: "operator-policies/{v}", actions: &[get(Member, policies::operator_of_vhost)] },
    Entry { pattern: "operator-policies/{v}/{n}", actions: &[get(Member, policies::operator_one), put(Administrator, policies::operator_set), delete(Administrator, policies::operator_clear)] },
    Entry { pattern: "parameters", actions: &[get(Policymaker, parameters::list)] },
    Entry { pattern: "parameters/{c}", actions: &[get(Policymaker, parameters::of_component)] },
    Entry { pattern: "parameters/{c}/{v}", actions: &[get(Policymaker, parameters::of_vhost)] },
    Entry { pattern: "parameters/{c}/{v}/{n}", actions: &[get(Policymaker, parameters::one), put(Policymaker, parameters::set), delete(Policymaker, parameters::clear)] },
    Entry { pattern: "global-parameters", actions: &[get(Policymaker, parameters::global_list)] },
    Entry { pattern: "global-parameters/{n}", actions: &[get(Policymaker, parameters::global_one), put(Policymaker, parameters::global_set), delete(Policymaker, parameters::global_clear)] },

    Entry { pattern: "vhost-limits", actions: &[get(Member, limits::vhosts)] },
    Entry { pattern: "vhost-limits/{v}", actions: &[get(Administrator, limits::vhost)] },
    Entry { pattern: "vhost-limits/{v}/{l}", actions: &[put(Administrator, limits::put_vhost), delete(Administrator, limits::delete_vhost)] },
    Entry { pattern: "user-limits", actions: &[get(Administrator, limits::users)] },
    Entry { pattern: "user-limits/{u}", actions: &[get(Administrator, limits::user)] },
    Entry { pattern: "user-limits/{u}/{l}", actions: &[put(Administrator, limits::put_user), delete(Administrator, limits::delete_user)] },

    Entry { pattern: "aliveness-test/{v}", actions: &[get(Member, health::aliveness)] },
    Entry { pattern: "healthchecks/node", actions: &[get(Member, health::node)] },
    Entry { pattern: "healthchecks/node/{n}", actions: &[get(Member, health::node)] },
    Entry { pattern: "health/checks/alarms", actions: &[get(Member, health::alarms)] },
    Entry { pattern: "health/checks/local-alarms", actions: &[get(Member, health::alarms)] },
    Entry { pattern: "health/checks/port-listener/{p}", actions: &[get(Member, health::port)] },
    Entry { pattern: "health/checks/protocol-listener/{p}", actions: &[get(Member, health::protocol)] },
    Entry { pattern: "health/checks/certificate-expiration/{n}/{u}", actions: &[get(Member, health::certificates)] },
    Entry { pattern: "health/checks/virtual-hosts", actions: &[get(Member, health::ok)] },
    Entry { pattern: "health/checks/node-is-mirror-sync-critical", actions: &[get(Member, health::single_node)] },
    Entry { pattern: "health/checks/node-is-quorum-critical", actions: &[get(Member, health::single_node)] },
    Entry { pattern: "health/checks/quorum-queues-without-elected-leaders/all-vhosts", actions: &[get(Member, health::ok)] },
    Entry { pattern: "health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{p}", actions: &[get(Member, health::ok)] },
    Entry { pattern: "health/checks/quorum-queues-without-elected-leaders/vhost/{v}", actions: &[get(Member, health::ok)] },
    Entry { pattern: "health/checks/quorum-queues-without-elected-leaders/vhost/{v}/pattern/{p}", actions: &[get(Member, health::ok)] },
    Entry { pattern: "health/checks/metadata-store/initialized", actions: &[get(Member, health::ok)] },
    Entry { pattern: "health/checks/metadata-store/initialized/with-data", actions: &[get(Member, health::ok)] },
    Entry { pattern: "health/checks/is-in-service", actions: &[get(Member, health::service)] },
    Entry { pattern: "health/checks/below-node-connection-limit", actions: &[get(Member, health::connections)] },
    Entry { pattern: "health/checks/ready-to-serve-clients", actions: &[get(Member, health::connections)] },
    Entry { pattern: "health/checks/reached-target-cluster-size", actions: &[get(Member, health::ok)] },

    Entry { pattern: "shovels", actions: &[get(Monitoring, shovels::list)] },
    Entry { pattern: "shovels/{v}", actions: &[get(Monitoring, shovels::of_vhost)] },
    Entry { pattern: "shovels/vhost/{v}/{n}", actions: &[get(Monitoring, shovels::one), delete(Policymaker, shovels::delete)] },
    Entry { pattern: "shovels/vhost/{v}/{n}/restart", actions: &[delete(Policymaker, shovels::restart)] },
    Entry { pattern: "federation-links", actions: &[get(Monitoring, features::none)] },
    Entry { pattern: "federation-links/{v}", actions: &[get(Monitoring, features::none)] },
    Entry { pattern: "federation-links/state/{s}", actions: &[get(Monitoring, features::none)] },
    Entry { pattern: "federation-links/{v}/state/{s}", actions: &[get(Monitoring, features::none)] },
    Entry { pattern: "stream/connections", actions: &[get(Member, features::none)] },
    Entry { pattern: "stream/connections/{v}", actions: &[get(Member, features::none)] },
    Entry { pattern: "stream/publishers", actions: &[get(Member, features::none)] },
    Entry { pattern: "stream/publishers/{v}", actions: &[get(Member, features::none)] },
    Entry { pattern: "stream/consumers", actions: &[get(Member, features::none)] },
    Entry { pattern: "stream/consumers/{v}", actions: &[get(Member, features::none)] },

    Entry { pattern: "lepus/moves", actions: &[get(Policymaker, moves::list), post(Policymaker, moves::begin)] },
    Entry { pattern: "lepus/moves/{m}", actions: &[get(Policymaker, moves::one), delete(Policymaker, moves::stop)] },
    Entry { pattern: "lepus/route-test", actions: &[post(Member, route_test::test)] },
    Entry { pattern: "lepus/session", actions: &[post(Password, sessions::begin), delete(Member, sessions::end)] },
    Entry { pattern: "lepus/sessions", actions: &[get(Member, sessions::list)] },
    Entry { pattern: "lepus/sessions/{i}", actions: &[delete(Member, sessions::revoke)] },
    Entry { pattern: "lepus/filters", actions: &[get(Member, filters::list)] },
    Entry { pattern: "lepus/filters/{v}", actions: &[get(Member, filters::of_vhost)] },
    Entry { pattern: "lepus/audit", actions: &[get(Administrator, audit::list)] },
    Entry { pattern: "lepus/ctl/state", actions: &[get(Administrator, ctl::state)] },
    Entry { pattern: "lepus/ctl/lifecycle", actions: &[post(Administrator, ctl::change_state)] },
    Entry { pattern: "lepus/ctl/status", actions: &[get(Administrator, ctl::status)] },
    Entry { pattern: "lepus/ctl/settings/{s}", actions: &[get(Administrator, ctl::get), put(Administrator, ctl::set)] },
    Entry { pattern: "lepus/ctl/log", actions: &[get(Administrator, ctl::log)] },
    Entry { pattern: "lepus/ctl/alarms/{a}", actions: &[put(Administrator, ctl::raise_alarm), delete(Administrator, ctl::clear_alarm)] },
    Entry { pattern: "lepus/ctl/authenticate", actions: &[post(Administrator, ctl::authenticate)] },
    Entry { pattern: "lepus/ctl/connections/close", actions: &[post(Administrator, ctl::close_connections)] },
    Entry { pattern: "lepus/ctl/policies/{v}/{k}/{n}", actions: &[get(Administrator, ctl::matching)] },
];
