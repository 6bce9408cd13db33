//! What a shard answers to those who ask and order from outside.

use crate::broker::Broker;
use crate::mail::Origin;
use crate::outbox::Outbox;
use crate::query::{Answer, Query, Setting};
use alloc::boxed::Box;
use alloc::string::String;
use lepus_base::{Now, ShardId};

impl Broker {
    /// Somebody outside asks or orders something. The answer comes in `out.answers` under `number`: with a
    /// change of the directory, and to who waits for policies, later, with everything else at once.
    ///
    /// # Panics
    /// When another shard than 0 is to change the directory.
    pub fn query(&mut self, now: Now, number: u64, query: Query, out: &mut Outbox) {
        self.shard.now = now;
        let answer = match query {
            Query::Change(request) => {
                assert!(self.shard.id == ShardId(0), "shard 0 orders the directory's changes");
                self.sequence(now, Origin::Control(number), request, out);
                return self.run_follow_ups(now, out);
            }
            Query::ChangeAll(requests) => {
                assert!(self.shard.id == ShardId(0), "shard 0 orders the directory's changes");
                self.sequence_all(now, number, requests, out);
                return self.run_follow_ups(now, out);
            }
            Query::CloseConnection { connection, why } => {
                Answer::Ordered(self.session().close_connection(now, connection, &why, out))
            }
            Query::MoveConnection { connection, to, why } => {
                Answer::Ordered(self.session().move_connection(now, connection, to, &why, out))
            }
            Query::MoveQueue { queue, to, why } => {
                Answer::Ordered(self.home().move_queue(now, queue, to, &why, out))
            }
            Query::Traffic { connections_max, queues_max, with_idle } => Answer::Traffic {
                queues: self.home().sample_queues(now, queues_max, with_idle),
                connections: self.session().sample_connections(now, connections_max, with_idle),
            },
            Query::AwaitPolicies { epoch } => {
                match self.home().await_policies(now, epoch, number) {
                    Some(answer) => answer,
                    None => return,
                }
            }
            Query::Alarm { shortage, is_on, source } => {
                self.shard.backpressure.order_shortage(shortage, is_on, source);
                Answer::Ordered(true)
            }
            Query::Set(setting) => {
                self.set(setting);
                Answer::Ordered(true)
            }
            Query::Route(test) => Answer::Routed(self.test_route(now, &test)),
            Query::VhostFigures(vhosts) => self.session().vhost_figures(&vhosts),
            Query::Alive => Answer::Alive,
            Query::Figures => Answer::Figures(Box::new(self.view().figures(now))),
            list @ (Query::Queues { .. }
            | Query::Connections(_)
            | Query::ConnectionsById(_)
            | Query::Channels(_)
            | Query::Consumers { .. }
            | Query::QueueFigures(_)
            | Query::Selectors(_)
            | Query::ExchangeFigures(_)
            | Query::FilterFigures(_)
            | Query::DearFilters { .. }
            | Query::FilteredQueues { .. }
            | Query::Exchanges { .. }
            | Query::Bindings { .. }
            | Query::Vhosts(_)
            | Query::Users(_)
            | Query::Permissions(_)
            | Query::TopicPermissions(_)
            | Query::Known { .. }) => self.view().lists().answer(list),
        };
        out.answers.push((number, answer));
        self.carry_own_mail(now, out);
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::MemoryShare(bytes) => self.shard.set_memory_share(bytes),
            Setting::ChannelMax(channels) => self.shard.settings.server.channel_max = channels,
            Setting::LoopbackUsers(names) => {
                let names = names.into_iter().map(String::into_boxed_str).collect();
                self.directory.accounts_mut().set_loopback_users(names);
            }
        }
    }
}
