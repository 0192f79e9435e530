"""The table of plants."""

from __future__ import annotations

from tests.mutants.planting import Edit, Plant

CLIENT = "fedguard/secagg/client.py"
SERVER = "fedguard/secagg/server.py"
SESSION = "fedguard/secagg/session.py"
KEYS = "fedguard/secagg/keys.py"
MESSAGES = "fedguard/secagg/messages.py"
TRANSITIONS = "fedguard/secagg/transitions.py"
DIRECTORY = "fedguard/secagg/directory.py"


def _row(name: str, because: str, first: str, *edits: tuple[str, str, str]) -> Plant:
    return Plant(name, because, [Edit(*edit) for edit in edits], first)


#: How a client draws what is secret in a session.
FRESH = "self._fresh(*(self._entropy(keys.SECRET_BYTES) for _ in range(3)))"


def fresh(mask: str = "self._entropy(keys.SECRET_BYTES)", seed: str = "self._entropy(keys.SECRET_BYTES)") -> str:
    """The same with another mask key, or another seed of the self mask."""
    return f"self._fresh(self._entropy(keys.SECRET_BYTES), {mask}, {seed})"


PLANTS = (
    # --- keys, and what they are bound to
    _row(
        "mask keys of 16-bit seeds",
        "mask keys of 128 bits and more, and no search goes through them",
        "seed_search",
        (
            CLIENT,
            FRESH,
            fresh(mask="self._entropy(2).ljust(keys.SECRET_BYTES, b'x')"),
        ),
    ),
    _row(
        "self masks of 16-bit seeds",
        "each input has a second mask of the client's own",
        "seed_search",
        (
            CLIENT,
            FRESH,
            fresh(seed="self._entropy(2).ljust(keys.SECRET_BYTES, b'x')"),
        ),
    ),
    _row(
        "one fixed seed for all self masks",
        "fresh key pairs and a fresh self mask for each session, whatever the server repeats",
        "seed_search",
        (
            CLIENT,
            FRESH,
            fresh(seed="bytes(keys.SECRET_BYTES)"),
        ),
    ),
    _row(
        "mask keys that follow from the long-term key",
        "fresh key pairs and a fresh self mask for each session, whatever the server repeats",
        "mask_reuse",
        (
            CLIENT,
            FRESH,
            fresh(mask="self._identity.sign(b'mask key')[:32]"),
        ),
    ),
    _row(
        "self masks that follow from the long-term key",
        "fresh key pairs and a fresh self mask for each session, whatever the server repeats",
        "mask_reuse",
        (
            CLIENT,
            FRESH,
            fresh(seed="self._identity.sign(b'seed')[:32]"),
        ),
    ),
    _row(
        "pairwise masks folded to 32 bits",
        "mask keys of 128 bits and more, and no search goes through them",
        "seed_search",
        (
            KEYS,
            "return _derived(sid, agreed, MASK + _ids(lo, hi) + key_lo + key_hi, size)",
            "return _derived(sid, agreed, MASK + _ids(lo, hi) + key_lo + key_hi, 4).ljust(size, bytes(1))",
        ),
    ),
    _row(
        "self masks folded to 32 bits",
        "mask keys of 128 bits and more, and no search goes through them",
        "seed_search",
        (
            KEYS,
            "return _derived(sid, seed, SELF + _ids(client), size)",
            "return _derived(sid, seed, SELF + _ids(client), 4).ljust(size, bytes(1))",
        ),
    ),
    _row(
        "mask keys folded to 32 bits where the stream is made",
        "mask keys of 128 bits and more, and no search goes through them",
        "test_masks.py::test_keystream_is_counter_mode_from_zero",
        (
            "fedguard/secagg/masks.py",
            "counter = Cipher(AES(key), CTR(bytes(16))).encryptor()",
            "key = key[:4] + bytes(len(key) - 4)\n    counter = Cipher(AES(key), CTR(bytes(16))).encryptor()",
        ),
    ),
    _row(
        "mask keys without the session",
        "every key, signature and encrypted share depends on the session",
        "mask_reuse",
        (KEYS, "return _derived(sid, agreed, MASK +", "return _derived(bytes(32), agreed, MASK +"),
    ),
    _row(
        "mask keys without ids and public keys",
        "every derived key is bound to its owners (ids and public keys)",
        "test_keys.py::test_every_fact_is_in_the_key",
        (KEYS, "MASK + _ids(lo, hi) + key_lo + key_hi", "MASK"),
    ),
    _row(
        "self mask keys without the session",
        "every key, signature and encrypted share depends on the session",
        "mask_reuse",
        (KEYS, "return _derived(sid, seed, SELF", "return _derived(bytes(32), seed, SELF"),
    ),
    _row(
        "self mask keys without their owner",
        "every derived key is bound to its owners (ids and public keys)",
        "test_keys.py::test_every_fact_is_in_the_key",
        (KEYS, "SELF + _ids(client), size", "SELF, size"),
    ),
    _row(
        "one label for both masks",
        "every derived key has a label of its own",
        "test_vectors.py::test_session_keys_signatures_and_masked_inputs_from_the_specification",
        (
            KEYS,
            "return _derived(sid, seed, SELF + _ids(client), size)",
            "return _derived(sid, seed, MASK + _ids(client), size)",
        ),
    ),
    _row(
        "share keys without the session",
        "every key, signature and encrypted share depends on the session",
        "test_keys.py::test_every_fact_is_in_the_key",
        (
            KEYS,
            "return AESGCM(_derived(sid, agreed, info, 32))",
            "return AESGCM(_derived(bytes(32), agreed, info, 32))",
        ),
    ),
    _row(
        "one share key for both directions",
        "one key per direction and session, used once: so the nonce may be zero",
        "mask_reuse",
        (
            KEYS,
            "info = SHARE + _ids(sender[0], receiver[0]) + sender[1] + receiver[1]",
            "(lo, key_lo), (hi, key_hi) = sorted((sender, receiver))\n    info = SHARE + _ids(lo, hi) + key_lo + key_hi",
        ),
    ),
    _row(
        "no associated data with encrypted shares",
        "shares that open only from their owner to their holder",
        "test_keys.py::test_a_share_opens_under_its_header_alone",
        (KEYS, "return key.encrypt(_NONCE, plain, header)", "return key.encrypt(_NONCE, plain, None)"),
        (KEYS, "return key.decrypt(_NONCE, cipher, header)", "return key.decrypt(_NONCE, cipher, None)"),
    ),
    _row(
        "shares that travel in the clear",
        "shares of its two secrets, encrypted for its neighbours",
        "pooled_shares",
        (KEYS, "return key.encrypt(_NONCE, plain, header)", "return plain + bytes(16)"),
        (KEYS, "return key.decrypt(_NONCE, cipher, header)", "return cipher[:-16]"),
    ),
    _row(
        "commitments to seeds without their owner",
        "each share and secret is bound to a signed commitment",
        "test_keys.py::test_every_fact_is_in_the_commitment",
        (KEYS, "hashlib.sha256(SEED + sid + _ids(client) + bytes(seed))", "hashlib.sha256(SEED + sid + bytes(seed))"),
    ),
    _row(
        "commitments to shares without their holder",
        "each share and secret is bound to a signed commitment",
        "test_keys.py::test_every_fact_is_in_the_commitment",
        (KEYS, "SHARED + sid + _ids(owner, holder) + kind + share", "SHARED + sid + _ids(owner) + kind + share"),
    ),
    _row(
        "commitments to both kinds of share alike",
        "each share and secret is bound to a signed commitment",
        "test_keys.py::test_every_fact_is_in_the_commitment",
        (KEYS, "SHARED + sid + _ids(owner, holder) + kind + share", "SHARED + sid + _ids(owner, holder) + share"),
    ),
    _row(
        "points of low order accepted",
        "no point of low order",
        "key_substitution",
        (
            KEYS,
            "        return bytearray(self._key.exchange(X25519PublicKey.from_public_bytes(public)))",
            "        try:\n            return bytearray(self._key.exchange(X25519PublicKey.from_public_bytes(public)))\n"
            "        except ValueError:\n            return bytearray(32)",
        ),
    ),
    _row(
        "no signature is verified",
        "keys signed under pinned identities",
        "key_substitution",
        (
            KEYS,
            "    except InvalidSignature:\n        return False",
            "    except InvalidSignature:\n        return True",
        ),
    ),
    # --- masks
    _row(
        "no self mask",
        "so that a server cannot call a client silent which was only slow, each input has a second mask of the client's own",
        "survivor_and_dropped",
        (
            CLIENT,
            "[self._self_mask(), *(self._pairwise_mask(v) for v in partners)]",
            "[*(self._pairwise_mask(v) for v in partners)]",
        ),
        (SERVER, "            yield keys.self_mask_key(self.sid, secret, owner, self.config.key_bytes), -1\n", ""),
    ),
    _row(
        "no pairwise masks",
        "its input under its own mask and one mask for each neighbour in U2",
        "survivor_and_dropped",
        (CLIENT, "[self._self_mask(), *(self._pairwise_mask(v) for v in partners)]", "[self._self_mask()]"),
        (SERVER, "for v in directory.among(owner, self.included):", "for v in ():"),
    ),
    _row(
        "masks of one neighbour left out",
        "its input under its own mask and one mask for each neighbour in U2",
        "dropout",
        (CLIENT, "*(self._pairwise_mask(v) for v in partners)]", "*(self._pairwise_mask(v) for v in partners[1:])]"),
    ),
    _row(
        "masks with the wrong sign",
        "its sign: + for the smaller id, - for the larger",
        "dropout",
        (CLIENT, "return key, 1 if self.id < v else -1", "return key, 1 if self.id > v else -1"),
    ),
    _row(
        "masks with one sign at both ends",
        "every mask stands in the sum twice, once with each sign",
        "dropout",
        (CLIENT, "return key, 1 if self.id < v else -1", "return key, 1"),
    ),
    _row(
        "keystream that starts anew with each piece",
        "PRG(key) = AES_key(0) | AES_key(1) | AES_key(2) | ...",
        "test_masks.py::test_a_mask_is_the_keystream_added_word_by_word",
        (
            "fedguard/secagg/masks.py",
            "    part = vector[: _HEAD // vector.itemsize]\n    for head, _, operation in masks:",
            "    part = vector\n    masks = [(np.resize(np.frombuffer(h, np.uint8), part.nbytes), r, o) for h, r, o in masks]\n"
            "    for head, _, operation in masks:",
        ),
        (
            "fedguard/secagg/masks.py",
            "for start in range(_HEAD // vector.itemsize, len(vector), len(words)):",
            "for start in range(0):",
        ),
    ),
    _row(
        "one mask key for all pairs of a session",
        "from one's own secret and the other's public key both compute the same secret, and the server cannot",
        "seed_search",
        (
            KEYS,
            "    return _derived(sid, agreed, MASK + _ids(lo, hi) + key_lo + key_hi, size)",
            "    return _derived(sid, bytes(32), MASK, size)",
        ),
    ),
    # --- shares
    _row(
        "threshold of the shares off by one",
        "fewer than t shares say nothing about a secret",
        "pooled_shares",
        (CLIENT, "split(secrets, self._config.threshold, ", "split(secrets, self._config.threshold - 1, "),
    ),
    _row(
        "one polynomial for both secrets",
        "with a fresh uniform f for each secret",
        "pooled_shares",
        (
            "fedguard/secagg/shamir.py",
            "drawn = iter(_uniform(len(secrets) * (threshold - 1), entropy))",
            "drawn = iter(_uniform(threshold - 1, entropy) * len(secrets))",
        ),
    ),
    _row(
        "polynomials that are known",
        "with a fresh uniform f for each secret",
        "pooled_shares",
        (
            "fedguard/secagg/shamir.py",
            "drawn = iter(_uniform(len(secrets) * (threshold - 1), entropy))",
            "drawn = iter([1] * (len(secrets) * (threshold - 1)))",
        ),
    ),
    _row(
        "shares without commitments",
        "each share and secret is bound to a signed commitment, so a wrong one names who made it",
        "bad_shares",
        (CLIENT, "if committed != (packet.seed_share, packet.key_share) or not in_field:", "if not in_field:"),
    ),
    _row(
        "shares outside the field accepted",
        "each share and secret is bound to a signed commitment, so a wrong one names who made it",
        "bad_shares",
        (
            CLIENT,
            "if committed != (packet.seed_share, packet.key_share) or not in_field:",
            "if committed != (packet.seed_share, packet.key_share):",
        ),
    ),
    _row(
        "revealed shares not held against their commitments",
        "rebuilds each secret from t checked shares",
        "bad_shares",
        (
            SERVER,
            "if value < PRIME and keys.share_commitment(self.sid, owner, holder, kind, share) == committed:",
            "if value < PRIME:",
        ),
    ),
    _row(
        "rebuilt seeds not held against their commitments",
        "each share and secret is bound to a signed commitment, so a wrong one names who made it",
        "bad_shares",
        (SERVER, "if keys.seed_commitment(self.sid, owner, secret) != self._shares[owner][0].seed:", "if False:"),
    ),
    _row(
        "rebuilt mask keys not held against the public ones",
        "each share and secret is bound to a signed commitment, so a wrong one names who made it",
        "bad_shares",
        (SERVER, "if pair.public != directory.entries[owner].mask_key:", "if False:"),
    ),
    _row(
        "a secret rebuilt from one share too few",
        "rebuilds each secret from t checked shares",
        "test_attacks_c.py::test_exactly_t_neighbours_are_enough_on_a_sparse_graph_and_one_fewer_are_not",
        (SERVER, "if len(shares) < self.config.threshold:", "if len(shares) < self.config.threshold - 1:"),
    ),
    _row(
        "both shares of a neighbour revealed",
        "an answer with one share per neighbour: neither can hold both",
        "survivor_and_dropped",
        (
            CLIENT,
            "messages.Unmask(tuple(bytes(shares[v not in self._included]) for v, shares in held))",
            "messages.Unmask(tuple(bytes(share) for pair in zip(*(s for _, s in held)) for share in pair))",
        ),
        (
            SERVER,
            "expected = len(self._directory.among(client, self.shared))",
            "expected = len(shares)\n        shares = shares[: len(self._directory.among(client, self.shared))]",
        ),
    ),
    # --- who is told what
    _row(
        "quorum off by one",
        "no share leaves before a quorum has signed the same survivors",
        "split_survivors",
        (CLIENT, "if len(signers) < needed or", "if len(signers) < needed - 1 or"),
    ),
    _row(
        "signers that are no survivors",
        "no share leaves before a quorum has signed the same survivors",
        "false_sets",
        (CLIENT, " or not quorum.signers <= self._included:", ":"),
    ),
    _row(
        "attestations without the survivors",
        "no share leaves before a quorum has signed the same survivors",
        "split_survivors",
        (
            MESSAGES,
            "        return self.shared_hash + self.included_hash\n",
            "        return self.shared_hash + self.included_hash\n\n"
            "    def digest(self) -> bytes:\n        return hashlib.sha256(self.shared_hash).digest()\n",
        ),
    ),
    _row(
        "attestations without those who shared",
        "the clients sign, once, U2 and U3",
        "test_keys.py::test_every_field_of_a_message_is_signed",
        (
            MESSAGES,
            "        return self.shared_hash + self.included_hash\n",
            "        return self.shared_hash + self.included_hash\n\n"
            "    def digest(self) -> bytes:\n        return hashlib.sha256(self.included_hash).digest()\n",
        ),
    ),
    _row(
        "masked inputs signed without those who shared",
        "no share of a client's seed leaves before that client has signed a masked input for those who shared",
        "withheld_shares",
        (
            MESSAGES,
            "return hashlib.sha256(shared_hash + vector_hash).digest()",
            "return hashlib.sha256(vector_hash).digest()",
        ),
    ),
    _row(
        "masked inputs signed without the input",
        "every signature covers what is sent",
        "test_keys.py::test_every_field_of_a_message_is_signed",
        (
            MESSAGES,
            "return hashlib.sha256(shared_hash + vector_hash).digest()",
            "return hashlib.sha256(shared_hash).digest()",
        ),
    ),
    _row(
        "signatures without the session",
        "the session id, in every signature and every key",
        "replay",
        (
            MESSAGES,
            "return _SIGNED + header.pack() + digest",
            "return _SIGNED + header.pack()[:3] + header.pack()[35:] + digest",
        ),
    ),
    _row(
        "signatures without any header",
        "the session id, in every signature and every key",
        "replay",
        (MESSAGES, "return _SIGNED + header.pack() + digest", "return _SIGNED + digest"),
    ),
    _row(
        "a second answer in R3",
        "each state takes one message and is left for good",
        "second_request",
        (
            TRANSITIONS,
            '(ClientState.MASKED, Phase.SURVIVORS): ("attest", ClientState.ATTESTED),',
            '(ClientState.MASKED, Phase.SURVIVORS): ("attest", ClientState.ATTESTED),\n'
            '    (ClientState.ATTESTED, Phase.SURVIVORS): ("attest", ClientState.ATTESTED),',
        ),
    ),
    _row(
        "a second answer in R4",
        "each state takes one message and is left for good; after the answer the shares are wiped",
        "second_request",
        (
            TRANSITIONS,
            '(ClientState.ATTESTED, Phase.QUORUM): ("unmask", ClientState.DONE),',
            '(ClientState.ATTESTED, Phase.QUORUM): ("unmask", ClientState.MASKED),',
        ),
    ),
    _row(
        "survivors that have not shared",
        "a client refuses survivors that were not there before",
        "false_sets",
        (
            CLIENT,
            'self._check_set(survivors.included, self._shared, "masked inputs")',
            'self._check_set(survivors.included, survivors.included, "masked inputs")',
        ),
    ),
    _row(
        "sharers that have not advertised keys",
        "a client refuses survivors that were not there before",
        "false_sets",
        (
            CLIENT,
            'self._check_set(shares.shared, self._directory.entries, "shared keys")',
            'self._check_set(shares.shared, shares.shared, "shared keys")',
        ),
    ),
    _row(
        "a set without the client itself",
        "a client refuses a set without the client that is shown it",
        "false_sets",
        (CLIENT, "if self.id not in clients:", "if False:"),
    ),
    _row(
        "packets withheld from the set that is named",
        "a client refuses fewer packets than owners are named",
        "false_sets",
        (CLIENT, "if [delivery.owner for delivery in shares.deliveries] != partners:", "if False:"),
        (
            CLIENT,
            "*(self._pairwise_mask(v) for v in partners)]",
            "*(self._pairwise_mask(d.owner) for d in shares.deliveries)]",
        ),
    ),
    _row(
        "too few survivors",
        "a quorum of all, and a threshold of each client's neighbours",
        "false_sets",
        (CLIENT, "if len(clients) < least or near < config.threshold:", "if near < config.threshold:"),
    ),
    _row(
        "too few neighbours among the survivors",
        "fewer than t packets are refused",
        "withheld_shares",
        (CLIENT, "if len(clients) < least or near < config.threshold:", "if len(clients) < least:"),
    ),
    _row(
        "too few members of a session",
        "the fewest clients whose keys a client accepts",
        "false_sets",
        (
            CLIENT,
            'self._check_enough(entries, "advertised keys", self._config.members)',
            'self._check_enough(entries, "advertised keys", 0)',
        ),
    ),
    # --- signatures, kind by kind
    _row(
        "keys without a signature",
        "keys signed under pinned identities",
        "key_substitution",
        (CLIENT, "signed = self._is_signed(client, Phase.ADVERTISE, entry.digest(), signature)", "signed = True"),
    ),
    _row(
        "packets without a signature",
        "each share and secret is bound to a signed commitment",
        "replay",
        (CLIENT, "if not self._is_signed(u, Phase.SHARE, root, delivery.signature):", "if False:"),
    ),
    _row(
        "masked inputs without a signature",
        "a client sees, before it attests, that each surviving neighbour signed its masked input for the same set U2",
        "withheld_shares",
        (CLIENT, "if not self._is_signed(v, Phase.MASKED, digest, proof[32:]):", "if False:"),
    ),
    _row(
        "attestations without a signature",
        "no share leaves before a quorum has signed the same survivors",
        "split_survivors",
        (CLIENT, "if not self._is_signed(client, Phase.ATTEST, told, signature):", "if False:"),
    ),
    _row(
        "a server that takes unsigned messages",
        "what is not signed anybody can make up",
        "bad_shares",
        (SERVER, "if not keys.verified(self._roster.identities[client], received.signature, content):", "if False:"),
    ),
    _row(
        "one public key in two places",
        "no key in two places",
        "key_substitution",
        (CLIENT, "if len(set(public)) < len(public):", "if False:"),
    ),
    _row(
        "own keys altered in the roster",
        "a client refuses a roster in which its own entry was altered or left out",
        "mask_reuse",
        (CLIENT, "if [entry for client, entry, _ in roster.entries if client == self.id] != [self._own]:", "if False:"),
    ),
    # --- what a session is made of
    _row(
        "session id without the model",
        "the session id contains the hash of the model that a client itself received",
        "test_keys.py::test_every_fact_is_in_the_session",
        (SESSION, "config.pack(), model_hash, nonce, *roster.identities)", "config.pack(), nonce, *roster.identities)"),
    ),
    _row(
        "session id without the configuration",
        "its identifier is a hash of the configuration, the round, the model, a nonce and the pinned roster",
        "test_keys.py::test_every_fact_is_in_the_session",
        (SESSION, "config.pack(), model_hash, nonce, *roster.identities)", "model_hash, nonce, *roster.identities)"),
    ),
    _row(
        "session id without the nonce",
        "its identifier is a hash of the configuration, the round, the model, a nonce and the pinned roster",
        "test_keys.py::test_every_fact_is_in_the_session",
        (
            SESSION,
            "config.pack(), model_hash, nonce, *roster.identities)",
            "config.pack(), model_hash, *roster.identities)",
        ),
    ),
    _row(
        "session id without the roster",
        "its identifier is a hash of the configuration, the round, the model, a nonce and the pinned roster",
        "test_keys.py::test_every_fact_is_in_the_session",
        (SESSION, "config.pack(), model_hash, nonce, *roster.identities)", "config.pack(), model_hash, nonce)"),
    ),
    _row(
        "session id without the round",
        "its identifier is a hash of the configuration, the round, the model, a nonce and the pinned roster",
        "test_keys.py::test_every_fact_is_in_the_session",
        (SESSION, 'struct.pack("<BII", VERSION, round, len(roster))', 'struct.pack("<BII", VERSION, 0, len(roster))'),
    ),
    _row(
        "another model or configuration among the keys",
        "a server that sends different models to different clients gets no sum",
        "test_refusals.py::test_model_mismatch_seen_by_the_others_and_by_the_server",
        (
            CLIENT,
            "if (entry.model_hash, entry.config_hash) != (self._own.model_hash, self._own.config_hash):",
            "if False:",
        ),
    ),
    _row(
        "messages of another round",
        "messages of another session, round, phase or suite are refused",
        "test_refusals.py::test_replay_or_wrong_round_leaves_a_client_as_it_was",
        (
            CLIENT,
            "if header.round != self._round or header.sender != codec.SERVER:",
            "if header.sender != codec.SERVER:",
        ),
    ),
    _row(
        "a session named without its fresh keys",
        "the session id contains all fresh keys, and stands in every signature: so a retry is another session",
        "retry",
        (
            DIRECTORY,
            'hashlib.sha256(SESSION + self.proposal + b"".join(packed))',
            "hashlib.sha256(SESSION + self.proposal)",
        ),
    ),
    _row(
        "signatures that name the proposal alone",
        "the session id contains all fresh keys, and stands in every signature: so a retry is another session",
        "retry",
        (
            CLIENT,
            "named = self.proposal if phase <= Phase.ROSTER else self.sid",
            "named = self.proposal if phase <= Phase.ROSTER or phase in (Phase.MASKED, Phase.ATTEST) else self.sid",
        ),
        (
            SERVER,
            "named = self.proposal if phase <= Phase.ROSTER else self.sid",
            "named = self.proposal if phase <= Phase.ROSTER or phase in (Phase.MASKED, Phase.ATTEST) else self.sid",
        ),
    ),
    _row(
        "a graph drawn from the proposal alone",
        "the graph is drawn from all fresh keys",
        "graph_grinding",
        (
            DIRECTORY,
            "seed = hashlib.sha256(GRAPH + self.sid).digest()",
            "seed = hashlib.sha256(GRAPH + self.proposal).digest()",
        ),
    ),
    _row(
        "rings that are not equally likely",
        "so many colluders around one client are too rare to be found by trying",
        "test_graph.py::test_every_ring_is_equally_likely",
        ("fedguard/secagg/graph.py", "j = _below(i + 1, words)", "j = _below(len(ring), words)"),
    ),
    # --- the client's policy
    *(
        _row(
            f"policy: {name} not compared",
            "each client's own policy, to which the proposal is compared before anything is sent",
            "weak_parameters",
            (SESSION, before, after),
        )
        for name, before, after in (
            ("members", '("members", self.members, min(config.members, clients)),', ""),
            ("threshold", '("threshold", self.threshold, config.threshold),', ""),
            ("quorum", '("quorum", self.quorum, config.quorum if config.attested else self.quorum),', ""),
            ("suite", '("suite", self.suite, config.suite),', ""),
            ("ring", '("ring", self.ring, config.ring),', ""),
            ("degree", "if config.degree != self.degree:", "if False:"),
            ("length", "if config.length != self.length:", "if False:"),
            ("consistency round", "if self.attested and not config.attested:", "if False:"),
            ("encoding", "if config.context != self.context:", "if False:"),
        )
    ),
    # --- what is left behind
    _row(
        "secrets not wiped after a round",
        "secrets are wiped when they have served",
        "secret_search",
        (CLIENT, "        if after is ClientState.DONE:\n            self._wipe()\n", ""),
    ),
    _row(
        "secrets not wiped after an abort",
        "a client refuses what does not fit by a named error, wipes its secrets and stops",
        "secret_search",
        (CLIENT, "        except BaseException:\n            self._wipe()\n", "        except BaseException:\n"),
    ),
    _row(
        "seeds not overwritten",
        "secrets are wiped when they have served",
        "secret_search",
        (CLIENT, "        seed[:] = bytes(len(seed))\n", ""),
    ),
    _row(
        "inputs kept after they are masked",
        "secrets are wiped when they have served",
        "secret_search",
        (
            CLIENT,
            "        vector, expected = self._vector(self.sid), ",
            "        vector = self._kept = self._vector(self.sid)\n        expected = ",
        ),
    ),
    _row(
        "an error that quotes shares",
        "no error quotes secrets",
        "secret_search",
        (CLIENT, 'f"{what}: this client itself is missing")', 'f"{what}: this client itself is missing {self._held}")'),
    ),
    # --- one form, one answer at a time, nothing left behind
    _row(
        "a second message answered meanwhile",
        "a client answers one message at a time, and refuses what comes meanwhile",
        "race",
        (CLIENT, "from threading import Lock\n", "from threading import RLock as Lock\n"),
        (
            CLIENT,
            "        masked = self._input()\n        add_masks(masked, [self._self_mask(), *(self._pairwise_mask(v) for v in partners)])\n",
            "        masks = [self._self_mask(), *(self._pairwise_mask(v) for v in partners)]\n"
            "        masked = self._input()\n        add_masks(masked, masks)\n",
        ),
    ),
    _row(
        "a flag of 256 forms",
        "any other bytes are refused; there is one form only",
        "test_bytes.py::test_a_flag_has_two_forms_and_not_256",
        (SESSION, "attested in (0, 1)", "attested >= 0"),
    ),
    _row(
        "a public key in a second form",
        "no key in two places",
        "test_bytes.py::test_a_key_in_another_form_is_named",
        (CLIENT, "if not (keys.canonical(entry.encryption_key) and keys.canonical(entry.mask_key)):", "if False:"),
    ),
    _row(
        "a body read before its length is judged",
        "header and length are judged before the body is read",
        "test_bytes.py::test_the_length_is_judged_before_the_body",
        (SERVER, "most = messages.longest(header.phase, self.config, len(self._roster))", "most = None"),
    ),
    _row(
        "errors that leave with the local variables of their frames",
        "no error quotes secrets",
        "test_crash_reports.py::test_no_secret_in_a_crash_report",
        ("fedguard/secagg/errors.py", "traceback.clear_frames(one.__traceback__)", "pass"),
    ),
    _row(
        "agreed secrets not overwritten",
        "secrets are wiped when they have served",
        "test_crash_reports.py::test_nothing_of_the_agreed_secrets_is_left",
        (CLIENT, "            secret[:] = bytes(len(secret))\n", "            pass\n"),
    ),
    _row(
        "a policy with a quorum of its own",
        "what is safe depends on how many clients there are and how many of them may collude",
        "test_bytes.py::test_a_policy_has_no_defaults_for_what_makes_it_safe",
        (
            SESSION,
            "    quorum: int\n    degree: int\n    length: int\n    context",
            "    quorum: int = 2\n    degree: int\n    length: int\n    context",
        ),
    ),
    _row(
        "whole numbers that wrap around",
        "what exceeds the ring is a named error",
        "test_sums.py::test_rows_that_wrapped_around",
        ("fedguard/secagg/sums.py", "if largest > most:", "if False:"),
    ),
    # --- blame
    _row(
        "the owner blamed for keys that the server made up",
        "nobody is named for what anybody could have sent",
        "key_substitution",
        (
            CLIENT,
            'f"the keys of client {client} are not signed by it")',
            'f"the keys of client {client} are not signed by it", client)',
        ),
    ),
    _row(
        "the owner blamed for a packet that the server made up",
        "nobody is named for what anybody could have sent",
        "replay",
        (
            CLIENT,
            'f"the packet of client {u} is not signed by it")',
            'f"the packet of client {u} is not signed by it", u)',
        ),
    ),
    _row(
        "a client blamed for a model hash that the server altered",
        "nobody is named for what anybody could have sent",
        "key_substitution",
        (CLIENT, "client if signed else None)", "client)"),
    ),
    _row(
        "a client blamed for what came in its name",
        "nobody is named for what anybody could have sent",
        "bad_shares",
        (
            SERVER,
            'f"the message is not signed by client {client}")',
            'f"the message is not signed by client {client}", client)',
        ),
    ),
    _row(
        "a client blamed for what is repeated",
        "nobody is named for what anybody could have sent",
        "bad_shares",
        (
            SERVER,
            'f"client {client} sends {header.phase.name} too late or twice")',
            'f"client {client} sends {header.phase.name} too late or twice", client)',
        ),
    ),
    _row(
        "a client blamed for keys that were copied from it",
        "nobody is named for what anybody could have sent",
        "bad_shares",
        (
            SERVER,
            'f"client {client} advertises a key that stands elsewhere")',
            'f"client {client} advertises a key that stands elsewhere", client)',
        ),
    ),
    _row(
        "the owner blamed for a share that its holder bent",
        "a revealed share that does not fit its commitment names who revealed it",
        "bad_shares",
        (
            SERVER,
            "self.blamed.append(self._error(errors.BadShare, message, holder))",
            "self.blamed.append(self._error(errors.BadShare, message, owner))",
        ),
    ),
    # --- the server
    _row(
        "a second input of one client added",
        "a second request for what is given once is refused",
        "bad_shares",
        (SERVER, "if header.phase < phase or client in self.heard:", "if header.phase < phase:"),
    ),
    _row(
        "a client that left comes back",
        "the server closes a step with a quorum or not at all",
        "test_refusals.py::test_a_client_that_left_cannot_come_back",
        (SERVER, "if header.phase > phase or client not in self._expected:", "if header.phase > phase:"),
    ),
    _row(
        "a server that takes other sessions' messages",
        "the session id, in every signature and every key",
        "bad_shares",
        (
            SERVER,
            "if header != self._header(header.phase, client):",
            "if False:",
        ),
    ),
    _row(
        "points of low order taken by the server",
        "the server refuses what would make the honest clients stop",
        "test_refusals.py::test_bad_public_key",
        (SERVER, "if not all(map(keys.usable, fresh)):", "if False:"),
    ),
    _row(
        "a short input padded",
        "a masked input of the wrong length names the client",
        "bad_shares",
        (SERVER, "if len(masked.vector) != expected:", "if len(masked.vector) > expected:"),
        (
            SERVER,
            "self._sum += np.frombuffer(masked.vector,",
            "self._sum += np.frombuffer(bytes(masked.vector).ljust(expected, bytes(1)),",
        ),
    ),
    # --- reals in the ring
    _row(
        "overflow budget off by one client",
        "the budget n (ceil(S C) + 1) <= 2^31 - 1, checked before anything runs",
        "test_encoding.py::test_the_budget_is_the_formula",
        (
            "fedguard/secagg/encoding.py",
            "needed = clients * largest + noise_tail",
            "needed = (clients - 1) * largest + noise_tail",
        ),
    ),
    _row(
        "weights without a budget",
        "no honest sum wraps: n max(S C + 1, W) + tail <= 2^(l - 1) - 1",
        "test_encoding.py::test_the_weights_have_a_budget_too",
        (
            "fedguard/secagg/encoding.py",
            "2 ** (self.ring - 1) - 1, max(self.steps + 1, self.largest_weight)",
            "2 ** (self.ring - 1) - 1, self.steps + 1",
        ),
    ),
    _row(
        "one rounding bit for all coordinates",
        "rounding goes up with the probability of the fraction",
        "test_encoding.py::test_each_coordinate_is_rounded_as_its_bits_say",
        (
            "fedguard/secagg/encoding.py",
            'draws = np.frombuffer(keystream(entropy(32), 4 * values.size), "<u4")',
            'draws = np.resize(np.frombuffer(keystream(entropy(32), 4), "<u4"), values.size)',
        ),
    ),
    _row(
        "the same rounding bits for each block",
        "rounding goes up with the probability of the fraction",
        "test_encoding.py::test_each_coordinate_is_rounded_as_its_bits_say",
        (
            "fedguard/secagg/encoding.py",
            "whole += draws[block] * 2.0**-32 < fraction",
            "whole += draws[: len(whole)] * 2.0**-32 < fraction",
        ),
    ),
    _row(
        "rounding to the nearest",
        "E[z] = S (w / W) x",
        "test_encoding.py::test_each_coordinate_is_rounded_as_its_bits_say",
        ("fedguard/secagg/encoding.py", "whole += draws[block] * 2.0**-32 < fraction", "whole += fraction > 0.5"),
    ),
    _row(
        "inputs that are not clipped",
        "an honest coordinate stays below the clip",
        "test_encoding.py::test_no_honest_coordinate_leaves_its_range",
        (
            "fedguard/secagg/encoding.py",
            "fraction = np.clip(values[block] * factor, low, high)",
            "fraction = values[block] * factor",
        ),
    ),
    _row(
        "an operating system that gives 16 bits at a time",
        "keys come from the operating system",
        "seed_search",
        (
            "fedguard/secagg/entropy.py",
            "system: Entropy = os.urandom",
            "def system(count: int) -> bytes:\n    return os.urandom(2).ljust(count, b'x')",
        ),
    ),
    _row(
        "coefficients that are not uniform",
        "with a fresh uniform f for each secret",
        "test_shamir.py::test_coefficients_are_drawn_again_where_the_remainder_would_be_biased",
        ("fedguard/secagg/shamir.py", " for number in numbers if number < _UNBIASED]", " for number in numbers]"),
    ),
    _row(
        "encrypted shares that do not name their holder",
        "shares that open only from their owner to their holder",
        "test_keys.py::test_the_header_of_a_share_tells_everything_that_it_belongs_to",
        (DIRECTORY, 'return header.pack() + struct.pack("<I", receiver)', "return header.pack()"),
    ),
    _row(
        "packets signed without the commitment to the seed",
        "each share and secret is bound to a signed commitment",
        "test_keys.py::test_every_field_of_a_message_is_signed",
        (MESSAGES, "return merkle.leaf(self.pack() + seed)", "return merkle.leaf(self.pack())"),
    ),
    _row(
        "a server content with one client too few",
        "the server closes a step with a quorum or not at all",
        "test_refusals.py::test_too_few_survivors_seen_by_the_server",
        (
            SERVER,
            "least = max(least, self.config.quorum, self.config.threshold + 1)",
            "least = max(least, self.config.quorum, self.config.threshold + 1) - 1",
        ),
    ),
    # --- noise
    _row(
        "colluders and malicious clients taken for the same",
        "the accountant counts survivors less all who may collude",
        "tests/test_masking.py::test_malicious_clients_and_colluders_are_not_taken_for_the_same",
        (
            "fedguard/architectures/masking/sessions.py",
            "contributors=max(0, len(outcome.included) - self._size.colluders - malicious),",
            "contributors=len(outcome.included) - max(self._size.colluders, malicious),",
        ),
    ),
    _row(
        "noise of clients counted that dropped out",
        "the accountant counts survivors less all who may collude",
        "tests/test_masking.py::test_a_run_with_noise_has_an_epsilon",
        (
            "fedguard/architectures/masking/sessions.py",
            "contributors=max(0, len(outcome.included) - self._size",
            "contributors=max(0, self._size.most - self._size",
        ),
    ),
    # --- parameters
    _row(
        "two quorums that share a colluder alone",
        "two quorums share more than A clients, hence an honest one, who signs but once",
        "split_survivors",
        (
            "fedguard/secagg/parameters.py",
            "quorum = (n + corrupted) // 2 + 1 if attested else 0",
            "quorum = (n + corrupted) // 2 if attested else 0",
        ),
    ),
    _row(
        "a threshold that the colluders around a client reach",
        "few colluders are around each client: t = t1 + 1",
        "test_parameters.py::test_the_degree_is_the_smallest_that_keeps_all_bounds",
        (
            "fedguard/secagg/parameters.py",
            "threshold = max(bound + 1, 2) if attested",
            "threshold = max(bound, 2) if attested",
        ),
    ),
    _row(
        "no allowance for tries",
        "2^40 tries are reckoned with",
        "test_parameters.py::test_demands_raise_the_degree",
        (
            "fedguard/secagg/parameters.py",
            "secure, alive = 2 ** (security + grinding), 2**failure",
            "secure, alive = 2**security, 2**failure",
        ),
    ),
    _row(
        "one share too few against split views",
        "the smallest t with 2t > k + colluders",
        "test_parameters.py::test_split_views_cannot_open_both_secrets_of_a_client",
        (
            "fedguard/secagg/parameters.py",
            "return (degree + colluders) // 2 + 1",
            "return (degree + colluders + 1) // 2",
        ),
    ),
    # --- bytes
    _row(
        "trailing bytes accepted",
        "any other bytes are refused; there is one form only",
        "survivor_and_dropped",
        (
            "fedguard/secagg/codec.py",
            "        if self._at != len(self._data):",
            "        if self._at > len(self._data):",
        ),
    ),
    _row(
        "leaves that are inner nodes as well",
        "SHA-256 of a packet, apart from all inner nodes",
        "test_keys.py::test_a_node_is_no_leaf",
        (
            "fedguard/secagg/merkle.py",
            '_LEAF, _NODE, _EMPTY = b"\\x00", b"\\x01", bytes(32)',
            '_LEAF, _NODE, _EMPTY = b"\\x01", b"\\x01", bytes(32)',
        ),
    ),
    _row(
        "a packet that may stand at any place of the tree",
        "shares that open only from their owner to their holder",
        "test_keys.py::test_a_packet_has_its_place",
        (
            "fedguard/secagg/merkle.py",
            "node = _join(sibling, node) if index >> height & 1 else _join(node, sibling)",
            "node = _join(*sorted((sibling, node)))",
        ),
        (
            "fedguard/secagg/merkle.py",
            "return hashlib.sha256(_NODE + left + right).digest()",
            "return hashlib.sha256(_NODE + min(left, right) + max(left, right)).digest()",
        ),
    ),
)
