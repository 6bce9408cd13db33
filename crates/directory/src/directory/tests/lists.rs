//! Lists of what is in many virtual hosts.

use super::*;
use crate::vhost::VhostMetadata;

/// The same requests in another virtual host.
fn within(vhost: VhostId, request: Request) -> Request {
    let mut request = request;
    match &mut request {
        Request::DeclareExchange { vhost: place, .. }
        | Request::DeclareQueue { vhost: place, .. }
        | Request::Bind { vhost: place, .. } => *place = vhost.into(),
        other => panic!("{other:?} is none that is made here"),
    }
    request
}

fn furnished(count: usize) -> (Fixture, Vec<VhostId>) {
    let mut fixture = Fixture::new();
    let mut vhosts = Vec::new();
    for number in 0..count {
        let name = format!("v{number}");
        fixture
            .does(&Request::CreateVhost { name: name.clone(), metadata: VhostMetadata::default() });
        let vhost = fixture.directory.vhost(&name).unwrap();
        vhosts.push(vhost);
        // In another order than that of a list.
        for name in ["r", "q"] {
            fixture.does(&within(vhost, declare_queue(name)));
            fixture.does(&within(vhost, bind("amq.direct", name, &format!("k{number}"))));
        }
        let filter = Table::new().with("x-filter", "a = 1");
        for source in ["amq.topic", "amq.fanout"] {
            let bind = bind_with(source, "q", "", filter.clone());
            fixture.does(&within(vhost, bind));
        }
        fixture.does(&within(vhost, declare_exchange("x", "fanout")));
    }
    (fixture, vhosts)
}

/// How often all exchanges and all queues were gone through.
fn passes(directory: &Directory) -> (usize, usize) {
    (directory.topology().gone_through(), directory.topology().queues().gone_through())
}

/// However many virtual hosts a list has, what is in them is gone through once.
#[test]
fn lists_of_many_virtual_hosts_take_one_pass() {
    for count in [1, 40] {
        let (fixture, mut vhosts) = furnished(count);
        let directory = &fixture.directory;
        // Neither by age nor by name, and not all of them.
        vhosts.reverse();
        if count > 1 {
            vhosts.swap(3, 20);
            vhosts.remove(7);
        }
        let before = passes(directory);
        let taken = |before: (usize, usize)| {
            let after = passes(directory);
            (after.0 - before.0, after.1 - before.1)
        };
        let exchanges: Vec<_> = directory.exchanges_of(&vhosts).collect();
        assert_eq!(taken(before), (1, 0), "{count}");
        let before = passes(directory);
        let queues: Vec<_> = directory.queues_of(&vhosts).collect();
        assert_eq!(taken(before), (0, 1), "{count}");
        let before = passes(directory);
        let bindings: Vec<_> = directory.bindings_of(&vhosts).collect();
        assert_eq!(taken(before), (1, 1), "{count}");
        let before = passes(directory);
        let filtered: Vec<_> = directory.filtered_exchanges(&vhosts).collect();
        assert_eq!(taken(before), (1, 0), "{count}");

        let each = || vhosts.iter().copied();
        let expected: Vec<_> = each().flat_map(|vhost| directory.exchanges(Some(vhost))).collect();
        assert_eq!(exchanges, expected);
        let expected: Vec<_> = each().flat_map(|vhost| directory.queues(Some(vhost))).collect();
        assert_eq!(queues, expected);
        let of = |vhost: VhostId| directory.bindings(vhost).map(move |info| (vhost, info));
        let expected: Vec<_> = each().flat_map(of).collect();
        assert_eq!(bindings, expected);
        assert_eq!(bindings.len(), 6 * vhosts.len());
        let found: Vec<_> = filtered.iter().map(|info| (info.vhost, &*info.name)).collect();
        let names = ["amq.fanout", "amq.topic"];
        let expected: Vec<_> = each().flat_map(|vhost| names.map(|name| (vhost, name))).collect();
        assert_eq!(found, expected);
    }
}
