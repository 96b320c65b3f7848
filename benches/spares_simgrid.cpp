// Sends messages over links in SimGrid, and says when each ends: what `benches/spares --simgrid` holds
// eyrie-topo's flows against.
//
// usage: spares_simgrid routes | torus AxBxC | fat-tree DOWN,DOWN UP,UP     < what the example `flows` says
//
// With `routes` SimGrid takes the links that eyrie-topo found, so that sharing alone is compared. With
// the others it has a network of its own, so that routes are compared, too. Links have no latency, and
// SimGrid's model of TCP is switched off.

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <simgrid/s4u.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

struct Message {
  unsigned from, to;
  double bytes, end;
  std::vector<unsigned> links;
};

static std::vector<unsigned long> numbers(const std::string& text, char separator)
{
  std::vector<unsigned long> found;
  std::stringstream rest(text);
  for (std::string part; std::getline(rest, part, separator);)
    found.push_back(std::stoul(part));
  return found;
}

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/weight-S:0");
  sg4::Engine::set_config("network/optim:Full");
  sg4::Engine::set_config("maxmin/precision:1e-9");

  std::vector<Message> messages;
  std::map<unsigned, double> capacities;
  unsigned nodes = 0;
  for (std::string line; std::getline(std::cin, line);) {
    std::stringstream words(line);
    std::string word;
    words >> word;
    if (word == "nodes")
      words >> nodes;
    if (word == "link") {
      unsigned link;
      words >> link >> capacities[link];
    }
    if (word == "message") {
      Message message;
      words >> message.from >> message.to >> message.bytes >> message.end;
      for (unsigned link; words >> link;)
        message.links.push_back(link);
      messages.push_back(message);
    }
  }

  const double bandwidth = 1e9;
  std::vector<sg4::Host*> hosts(nodes);
  const std::string kind = argc > 1 ? argv[1] : "routes";
  if (kind == "routes") {
    auto* zone = sg4::create_full_zone("all");
    for (unsigned node = 0; node < nodes; node++)
      hosts[node] = zone->create_host("h" + std::to_string(node), 1e9);
    std::map<unsigned, sg4::Link*> links;
    for (auto [link, capacity] : capacities)
      links[link] = zone->create_link("l" + std::to_string(link), bandwidth * capacity)->set_latency(0)->seal();
    std::map<std::pair<unsigned, unsigned>, bool> routed;
    for (const auto& message : messages) {
      if (std::exchange(routed[{message.from, message.to}], true))
        continue;
      std::vector<sg4::LinkInRoute> way;
      for (auto link : message.links)
        way.emplace_back(links[link]);
      zone->add_route(hosts[message.from]->get_netpoint(), hosts[message.to]->get_netpoint(), nullptr, nullptr, way,
                      false);
    }
    zone->seal();
  } else {
    auto place = [&](sg4::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
      // Switches of a fat tree have no call of this; ids are of nodes.
      auto* host = zone->create_host("h" + std::to_string(id), 1e9)->seal();
      if (id < nodes)
        hosts[id] = host;
      return std::make_pair(host->get_netpoint(), static_cast<simgrid::kernel::routing::NetPoint*>(nullptr));
    };
    const sg4::ClusterCallbacks callbacks(place);
    sg4::NetZone* zone;
    if (kind == "torus") {
      zone = sg4::create_torus_zone("torus", nullptr, numbers(argv[2], 'x'), callbacks, bandwidth, 0,
                                    sg4::Link::SharingPolicy::SPLITDUPLEX);
    } else {
      std::vector<unsigned> down, up;
      for (auto n : numbers(argv[2], ','))
        down.push_back(n);
      for (auto n : numbers(argv[3], ','))
        up.push_back(n);
      std::vector<unsigned> ones(down.size(), 1);
      zone = sg4::create_fatTree_zone("tree", nullptr, {static_cast<unsigned>(down.size()), down, up, ones}, callbacks,
                                      bandwidth, 0, sg4::Link::SharingPolicy::SPLITDUPLEX);
    }
    zone->seal();
  }

  std::vector<double> ends(messages.size());
  for (unsigned number = 0; number < messages.size(); number++) {
    auto* box = sg4::Mailbox::by_name("m" + std::to_string(number));
    const auto& message = messages[number];
    const double bytes = message.bytes * bandwidth;
    sg4::Actor::create("s", hosts[message.from], [box, bytes]() {
      static int nothing;
      box->put(&nothing, static_cast<uint64_t>(bytes));
    });
    sg4::Actor::create("r", hosts[message.to], [box, number, &ends]() {
      box->get<int>();
      ends[number] = sg4::Engine::get_clock();
    });
  }
  engine.run();

  double worst = 0, total = 0, own = 0;
  for (unsigned number = 0; number < messages.size(); number++) {
    worst = std::max(worst, std::abs(ends[number] / messages[number].end - 1));
    total = std::max(total, ends[number]);
    own = std::max(own, messages[number].end);
  }
  std::printf("%zu messages: all end at %.4f in SimGrid, at %.4f here; one message differs by %.2f %% at most\n",
              messages.size(), total, own, worst * 100);
  return 0;
}
