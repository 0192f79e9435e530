"""Two messages at once: of threads, and of callbacks that speak to the client which called them."""

import threading

import pytest

from fedguard.secagg import codec, errors, messages
from fedguard.secagg.codec import Phase
from fedguard.secagg.transitions import ClientState, ServerState
from tests.secagg.rounds import Round


def together(*calls):
    """What each call returns or raises, all begun at the same time."""
    gate, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(place, call):
        gate.wait()
        try:
            results[place] = call()
        except BaseException as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_two_threads_with_two_sets_of_shares_one_is_answered():
    run, inside, leave = Round(5), threading.Event(), threading.Event()

    def vector(sid):
        inside.set()
        assert leave.wait(10)
        return run.inputs[0]

    run.clients[0] = run.client(0, vector=vector)
    answers = []

    def tap(sender, receiver, data):
        if receiver != 0 or codec.read_header(data).phase is not Phase.SHARES:
            return data
        received = messages.unpack(data)
        kept = tuple(delivery for delivery in received.message.deliveries if delivery.owner != 4)
        fewer = messages.pack(received.header, messages.ShareDistribution(received.message.shared - {4}, kept))

        def second():
            assert inside.wait(10)
            try:
                return run.clients[0].receive(fewer)
            finally:
                leave.set()

        answers.extend(together(lambda: run.clients[0].receive(data), second))
        run.server.receive(answers[0])
        return None

    run.run(tap)
    assert isinstance(answers[0], bytes) and isinstance(answers[1], errors.AlreadyAnswered)
    assert "while another one is being answered" in str(answers[1])
    assert (run.server.total == run.sum(range(5))).all() and run.complaints == []


@pytest.mark.parametrize("callback", ["vector", "entropy"])
def test_a_callback_that_speaks_to_its_own_client_is_refused(callback):
    """And what the callback does not catch ends the session, with the secrets wiped."""
    run = Round(4)
    hello = run.server.hello()
    caught = []

    def again():
        with pytest.raises(errors.AlreadyAnswered, match="being answered") as error:
            run.clients[0].receive(hello)
        caught.append(error)

    def vector(sid):
        again()
        return run.inputs[0]

    def entropy(count):
        again()
        return run.entropy(count)

    run.clients[0] = run.client(0, **{callback: {"vector": vector, "entropy": entropy}[callback]})
    assert (run.run().server.total == run.sum(range(4))).all() and caught and run.complaints == []


def test_a_callback_that_fails_ends_the_session():
    run = Round(4)

    def vector(sid):
        raise OSError("the disk is full")

    run.clients[0] = run.client(0, vector=vector)
    with pytest.raises(OSError, match="the disk is full"):
        run.run()
    assert run.clients[0].state is ClientState.ABORTED and run.clients[0]._agreed == {} == run.clients[0]._held


def test_a_session_that_is_given_up_is_wiped_and_over():
    run = Round(4)
    run.clients[0].receive(run.server.hello())
    run.clients[0].close()
    assert run.clients[0].state is ClientState.ABORTED and not any(run.clients[0]._seed)
    with pytest.raises(errors.AlreadyAnswered):
        run.clients[0].receive(run.server.hello())


def test_threads_that_bring_one_input_several_times_have_it_added_once():
    run = Round(4)

    def tap(sender, receiver, data):
        if sender != 2 or codec.read_header(data).phase is not Phase.MASKED:
            return data
        results = together(*[lambda: run.server.receive(data)] * 8)
        assert sorted(type(result).__name__ for result in results) == ["AlreadyAnswered"] * 7 + ["NoneType"]
        return None

    run.run(tap)
    assert (run.server.total == run.sum(range(4))).all()


def test_a_server_that_is_closed_twice_at_once_has_one_sum():
    run = Round(4)
    while run.server.state is not ServerState.UNMASKING:
        run.run(lambda s, r, data: None if s >= 0 and codec.read_header(data).phase is Phase.UNMASK else data)
        break
    assert run.server.state is ServerState.ABORTED
    for what in (run.server.close, lambda: run.server.awaits):
        with pytest.raises(errors.AlreadyAnswered, match="the session is over"):
            what()
    run = Round(4).run()
    for what in (run.server.close, lambda: run.server.awaits, lambda: run.server.receive(run.server.hello())):
        with pytest.raises(errors.AlreadyAnswered, match="the session is over"):
            what()
    assert (run.server.total == run.sum(range(4))).all()
