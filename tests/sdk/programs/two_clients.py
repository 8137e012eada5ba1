import threading

from common import *

client = client()
made = session(client)
seen, ready = [], [threading.Event(), threading.Event()]


def follow(place):
    with client.beta.sessions.events.stream(made.id) as stream:
        ready[place].set()
        seen.append([event.id for event in until_idle(stream)])


threads = [threading.Thread(target=follow, args=(place,)) for place in range(2)]
for thread in threads:
    thread.start()
for event in ready:
    event.wait()
send(client, made.id, message("Hello"))
for thread in threads:
    thread.join()
assert len(seen) == 2 and seen[0] == seen[1], seen
assert seen[0] == [event.id for event in listed(client, made.id)]
