// RemoteExecutor: memory of a session that moves from one server straight to another.
#include "executor/remote.hpp"

namespace grus {

using channel::Kind;

std::optional<PageTicket> RemoteExecutor::expect_pages() {
  const auto answer = connection_->ask(Kind::expect_pages);
  if (!answer) return std::nullopt;
  wire::Reader reader{*answer};
  if (reader.take<cl_int>() != CL_SUCCESS) return std::nullopt;
  PageTicket ticket{server_, security_ == channel::Security::tls, 0, {}};
  reader(ticket.session, ticket.key);
  return ticket;
}

std::string RemoteExecutor::connect_pages(const PageTicket& ticket) {
  const auto answer =
      connection_->ask(Kind::connect_pages, ticket.address, ticket.is_secure, ticket.session, ticket.key);
  return answer ? wire::Reader{*answer}.take<std::string>() : "the connection is lost";
}

Result<PagesSent> RemoteExecutor::send_pages(const PagesOrder& order) {
  const auto answer = connection_->ask(Kind::send_pages, order.memory, order.queue, order.range, order.kind,
                                       order.sample, order.sample_at, order.is_last, order.to, order.to_offset);
  if (!answer) return Failure{kLost};
  wire::Reader reader{*answer};
  if (const auto code = reader.take<cl_int>(); code != CL_SUCCESS) return Failure{code};
  PagesSent sent;
  reader(sent.read, sent.sent, sent.zero, sent.never_sent, sent.sampled);
  return sent;
}

void RemoteExecutor::take_pages(ObjectId queue, const std::function<void(cl_int)>& done) {
  const auto taken = [done](wire::Reader* reader) { done(reader ? reader->take<cl_int>() : kLost); };
  connection_->ask_later({}, taken, Kind::take_pages, queue);
  connection_->flush();
}

void RemoteExecutor::end_pages() {
  connection_->tell(Kind::end_pages);
  connection_->flush();
}

void RemoteExecutor::note_move(const MoveStage& stage) {
  connection_->tell(Kind::moving, stage.way, stage.done, stage.all);
  connection_->flush();
}

}  // namespace grus
