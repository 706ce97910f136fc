"""What the local planner asks for, and above all what it leaves alone. None of these turns is in the corpus."""

from __future__ import annotations

import pytest

from retold.contracts.record import RetrievalCategory
from retold.contracts.stages import EMPTY_PROFILE, ProposedGap
from retold.models.embedding.minilm import MiniLmEmbedder
from retold.policy.local import LocalGapPlanner, WrongEmbedderError
from retold.policy.rules import clean_gaps
from tests.unit.policy_local.conftest import NamedEmbedder
from training import corpus

RECALL = """
When is my next haircut?
What did I tell you about my new upstairs neighbour?
Which vaccine did my daughter get in spring?
What's the nickname my grandfather gave me?
How much did we pay the roofer?
Who lent me the tent for the festival?
What did Ravi answer about the loan?
Why did Beatrix sell her allotment?
Where does Omar go climbing?
What is the name of Thea's goat?
When does the tenancy of the workshop end?
What was agreed with the caterer?
Which node does the reporting database run on?
Wann hat meine Nichte Geburtstag?
Où est-ce que j'ai rangé mes skis ?
¿Cómo se llama la profesora de mi hijo?
我的护照什么时候到期？
मेरी नानी किस शहर में रहती हैं?
""".strip().splitlines()

ABOUT_ME = """
Am I diabetic?
Do I have a nephew?
Did I water the ficus on Sunday?
Is my bicycle still under warranty?
Have I ever been to Porto?
Does my aunt eat fish?
May I use the lift at work after midnight?
Am I allowed to fly with my ear infection?
Was I named after my grandfather?
Am I enrolled in the pension plan?
How many visitors may I receive at the clinic?
How many sweets is my son allowed per day?
""".strip().splitlines()

PRIVATE_THINGS = """
What is the harbour fee for Seaswallow?
What does the winter storage of Seaswallow cost?
What is the tank capacity of Rusty?
What is the memory limit of the Osprey worker?
What is the budget cap for Project Thistle?
How much is the parish hall rental?
Which number is my tram pass?
""".strip().splitlines()

LOOK_ALIKES = """
Am I right that water boils at 100 °C?
Am I wrong in saying that spiders are insects?
Do I need a passport to travel from Spain to Portugal?
Do I have to cite a source for common knowledge?
Did I conjugate "to swim" correctly: swim, swam, swum?
Can I replace butter with oil in brownies?
Is my grammar right here: "He don't know nothing"?
May I end a letter with "Best"?
What is the entrance fee of the Louvre?
What is the toll for the Brenner motorway?
What is the memory limit of AWS Lambda?
What is the top speed of a cheetah?
What is the minimum age to be a US senator?
What does a first-class stamp cost in the UK?
How many hours may a pilot fly a month?
How many people fit in a London bus?
How many teaspoons are in a tablespoon?
Habe ich recht, dass die Sonne ein Stern ist?
¿Cuánto cuesta subir a la Sagrada Familia?
一年有多少个星期？
""".strip().splitlines()

PREFERENCE = """
Can you recommend a place for brunch in Antwerp?
Which tent should I buy for our summer trip?
I'm hosting my in-laws on Sunday. What should I cook?
Suggest a detective series I could start tonight.
I want to take up a winter sport, which one would you suggest?
What should I give my godson for his tenth birthday?
""".strip().splitlines()

ORDINARY = """
good evening
thanks, that is all I needed
What is the melting point of tin?
Who wrote the opera Fidelio?
When did Dorothy Hodgkin receive the Nobel prize?
Which club did Johan Cruyff play for in 1975?
Write a sonnet about a lighthouse.
Translate "my aunt has a blue bicycle" into Dutch.
How do I flatten a nested list in Python?
Why does my query fail: SELCT name FORM users;
I have 9 pears, eat 2 and buy 6 more. How many pears do I have?
Petra is twice as old as Ida, who is 11. How old is Petra?
My hamster is 2 years old, how old is that in human years?
Correct this sentence: "me and my brother was hungry".
Explain to me how a heat pump works.
What is the difference between a crow and a raven?
Would a camel survive in Iceland?
Rewrite this paragraph in the style of a pirate: The ship left the port at dawn.
Was ist eine Primzahl?
Combien de cordes a une harpe ?
Escribe un poema sobre la lluvia.
水的沸点是多少？
Summarise the plot of Moby-Dick in two sentences.
How many bytes are in a kibibyte?
""".strip().splitlines()


async def plan(planner: LocalGapPlanner, turn: str) -> tuple[ProposedGap, ...]:
    return (await planner.plan(turn, None, EMPTY_PROFILE, [RetrievalCategory.OTHER])).gaps


@pytest.fixture(scope="session")
async def planner(minilm: MiniLmEmbedder) -> LocalGapPlanner:
    return LocalGapPlanner(minilm)


def test_the_held_out_turns_are_not_in_the_corpus() -> None:
    trained = {line for path in corpus.FOLDER.glob("*.txt") for _, line in corpus.lines(path.name)}
    assert not trained & {*RECALL, *ABOUT_ME, *PRIVATE_THINGS, *LOOK_ALIKES, *PREFERENCE, *ORDINARY}


async def test_asks_for_what_only_memory_knows(planner: LocalGapPlanner) -> None:
    silent = [turn for turn in (*RECALL, *PREFERENCE) if not await plan(planner, turn)]
    assert len(silent) <= 2, silent


@pytest.mark.parametrize("kind", [ABOUT_ME, PRIVATE_THINGS], ids=["about me", "private things"])
async def test_a_state_a_limit_or_an_attribute_nobody_else_knows_is_asked_for(
    planner: LocalGapPlanner, kind: list[str]
) -> None:
    silent = [turn for turn in kind if not await plan(planner, turn)]
    assert len(silent) <= 1, silent


async def test_their_look_alikes_are_general_knowledge(planner: LocalGapPlanner) -> None:
    fired = [turn for turn in LOOK_ALIKES if await plan(planner, turn)]
    assert len(fired) <= 1, fired


async def test_leaves_ordinary_turns_and_look_alikes_alone(planner: LocalGapPlanner) -> None:
    fired = [turn for turn in ORDINARY if await plan(planner, turn)]
    assert len(fired) <= 1, fired


async def test_with_nothing_stored_nothing_is_searched(planner: LocalGapPlanner) -> None:
    assert not (await planner.plan("What is my sister's name?", None, EMPTY_PROFILE, [])).gaps


async def test_gaps_are_valid_as_they_come(planner: LocalGapPlanner) -> None:
    gaps = [gap for turn in (*RECALL, *PREFERENCE) for gap in await plan(planner, turn)]
    assert all(clean_gaps([gap], max_gaps=3).dropped == 0 for gap in gaps)


async def test_a_compound_question_becomes_two_gaps(planner: LocalGapPlanner) -> None:
    gaps = await plan(planner, "What did my accountant say about the refund and when is my next vet appointment?")
    assert [gap.query for gap in gaps] == [
        "What did my accountant say about the refund",
        "when is my next vet appointment",
    ]


async def test_a_part_that_points_back_stays_with_what_it_points_at(planner: LocalGapPlanner) -> None:
    (gap,) = await plan(planner, "When did I buy my kayak and how much did it cost?")
    assert gap.query == "When did I buy my kayak and how much did it cost"


async def test_the_query_is_the_question_without_its_politeness(planner: LocalGapPlanner) -> None:
    (gap,) = await plan(planner, "Hey, can you remind me again what we decided about the kitchen floor, please?")
    assert gap.query == "what we decided about the kitchen floor"
    assert gap.category == "prior_decision"


async def test_a_long_turn_gives_a_query_within_bounds(planner: LocalGapPlanner) -> None:
    turn = "What did I say about the contract with my landlord " + "and the heating in the hall " * 60 + "?"
    assert all(0 < len(gap.query) <= 400 for gap in await plan(planner, turn))


async def test_a_wish_is_a_preference_gap(planner: LocalGapPlanner) -> None:
    (gap,) = await plan(planner, "Can you recommend a hotel for our week in Turin?")
    assert gap.category == "preference"


@pytest.mark.parametrize("other", [NamedEmbedder(model="bge-small"), NamedEmbedder(dimension=256)])
def test_refuses_an_embedder_the_weights_do_not_know_and_names_both(other: NamedEmbedder) -> None:
    with pytest.raises(
        WrongEmbedderError, match=rf"all-MiniLM-L6-v2 with 384.*{other.identity.model} with {other.identity.dimension}"
    ):
        LocalGapPlanner(other)
