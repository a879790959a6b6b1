"""Sentence templates of the world, by what they tell, and the questions that ask for it."""

from dataclasses import dataclass

# --- a person's life; the first sentence of a text always has the full name --------------------------------------
BORN = (
    "{person} was born in {birthplace} in {birth_year}.",
    "{person}[, the {job},|] was born [in the town of|in] {birthplace} in [the year |]{birth_year}.",
    "In {birth_year} {person} was born in {birthplace}, [a town in {country}|not far from the {river}].",
    "{person} came into the world in {birthplace} in [the winter of |the spring of |]{birth_year}.",
)
WORKED = (
    "In {job_year} {name} [found work|began|started out] as a {job} at {employer}.",
    "{employer} hired {name} as a {job} in {job_year}.",
    "{name} worked for {employer} as a {job} from {job_year}.",
    "From {job_year} {name} was [employed|on the payroll] at {employer}, where {he} worked as a {job}.",
)
MOVED = (
    "In {move_year} {name} moved to {home}[ with only a {tool} and a suitcase| to start again|].",
    "{name} moved to {home} in {move_year}[, because rooms were cheap there|].",
    "[Work was scarce, so|When trade was slow,] {name} moved to {home} in {move_year}.",
    "{name} [packed a {tool} and|sold everything and] moved to {home} in {move_year}.",
)
MARRIED = (
    "{name} married {spouse}[ in a small church| after a long courtship| in the autumn|].",
    "[Two years later|The next summer|Soon afterwards] {name} married {spouse}.",
    "At a [harvest dance|neighbor's wedding] {he} met {spouse}, whom {he} married.",
)
LEARNT = (
    "There {he} learnt {skill} and [soon|before long] handled the {tool} better than anyone.",
    "An old {worker} taught {him} {skill}, [with much patience|and it took two winters].",
    "{he} [spent most days|was happiest] {skill} in the {room}.",
    "With {his} own {tool} {he} {act} {product} [until nightfall|day after day].",
    "[Even as an old {worker}|Until the very end] {he} never stopped {skill}.",
    "{his} hands always smelled of {material}.",
)

# --- a firm ------------------------------------------------------------------------------------------------------
FOUNDED = (
    "{founder} founded {firm} in {founding_year}.",
    "{firm} was founded by {founder} in {founding_year}.",
    "In {founding_year} {founder} founded the {firm_noun} that is now called {firm}.",
    "{firm}, [a {firm_noun}|an old {firm_noun}], was founded in {founding_year} by {founder}.",
)
SEATED = (
    "{the_firm} has its [seat|yard|offices] in {town}.",
    "{the_firm} is based in {town}[, {setting}|].",
    "{the_firm} rented a {room} in {town} and is based there [to this day|still].",
    "The [main building|counting room] of {the_firm} stands in {town}.",
)
MADE = (
    "{the_firm} makes {main_product}[ and little else| for the whole country|].",
    "{the_firm} is known for its {main_product}.",
    "Above all {the_firm} makes {main_product}, [each|all of them] checked by a {worker}.",
    "Traders come from afar to buy {main_product} from {the_firm}.",
)
HEADED = (
    "Today {head} [leads|runs] {the_firm}.",
    "{the_firm} is now led by {head}[, once a {worker}|].",
    "Since last year {head} has led {the_firm}.",
)
RIVAL = (
    "Its rival is {rival}[, which has the same customers|].",
    "For years {the_firm} has competed with its rival {rival}.",
)

# --- a trade; the same words occur together wherever the trade is spoken of -----------------------------------
DETAIL = (
    "With {material} the {worker}s {act} {product}.",
    "In the {room} a {worker} was busy {skill}.",
    "[A {tool}|The best {tool}] is of little use without {material}.",
    "Every {worker} knows that {product} need good {material}.",
    "{material} [was|had to be] carried to the {room} [before dawn|every morning|by hand].",
    "One {worker} held the {tool} while another was {skill}.",
    "They {act} the {product} and stacked them in the {room}.",
    "[New|Young] {worker}s begin by {skill}, then they are given a {tool}.",
    "The {room} smelled of {material}, and a {tool} hung on the wall.",
    "[Nothing|Hardly anything] pleases a {worker} like {skill}.",
)
GOOD = (
    "[That year|This season] {good}, and wages rose.",
    "[Happily|To everyone's joy], {good}.",
    "{good}, so [more {worker}s were hired|the {room} was enlarged].",
    "Profits doubled because {good}.",
)
BAD = (
    "[That year|This season] {bad}, and wages were cut.",
    "[Sadly|To everyone's grief], {bad}.",
    "{bad}, so [half of the {worker}s were dismissed|the {room} was closed].",
    "Money was lost because {bad}.",
)

# --- a town ------------------------------------------------------------------------------------------------------
PLACED = (
    "{town} is a town in {country}, {setting}.",
    "The town of {town} lies in {country}, on the river {river}.",
    "{town}, a town in {country}, lies {setting}.",
    "On the banks of the {river} lies {town}, [one of the oldest towns|a small town] in {country}.",
)
LIVES_ON = (
    "[Most families|The people here] live on {trade}.",
    "The town has lived on {trade} for [two centuries|as long as anyone remembers].",
    "{trade} is what {town} is known for.",
)
TOWN_FIRM = (
    "[On the market square|Near the bridge] stands {firm}, which makes {main_product}.",
    "The best known firm in {town} is {firm}, a {firm_noun}.",
    "Many {worker}s of {town} work for {firm}.",
)
TOWN_PERSON = (
    "{person}, a {job}, was born in {town}.",
    "A street in {town} is named after {person}, the {job}.",
    "{person} of {employer} grew up in {town}.",
)

# --- letters and newspapers --------------------------------------------------------------------------------------
GREETING = ("Dear {friend}, I write to you from {town}.", "My dear {friend}, it is late here in {town}.")
LETTER_WORK = (
    "I have found work as a {job} at {firm}.",
    "{firm} has taken me on as a {job}.",
    "They made me a {job} at {firm} last month.",
)
FAREWELL = (
    "Write soon and greet {person}.",
    "Give my love to {person}, your {first_name}.",
    "I hope to visit {country} in the summer.",
)
REPORTED = (
    "{town}: {firm} [announced|said] on [Monday|Friday] that {news}.",
    "There is news from {firm} in {town}, where {news}.",
    "People in {town} talk of {firm}, where {news}.",
)
QUOTED = (
    "{person}, a {job} at {firm}, was [proud|glad].",
    "Nobody expected it, said {person}, a {job} at {firm}.",
    "{head}, who leads {firm}, would not say more.",
)

# --- talk: sentences that could be about anything; what kind of thing it is has to be known ---------------------
TALK = (
    "We spoke of {thing} all evening.",
    "She wrote to me about {thing} again.",
    "Nobody mentioned {thing} at supper.",
    "There was a story about {thing} in the newspaper.",
    "I dreamt of {thing} last night.",
    "He asked us about {thing} twice.",
    "The children drew {thing} on the wall.",
    "Have you heard about {thing}?",
    "In the end everything depended on {thing}.",
)


@dataclass(frozen=True)
class Relation:
    """A fact that can be asked for: the slot that answers, the sentences that tell it, and the questions."""

    slot: str
    told_by: tuple[str, ...]
    questions: tuple[str, ...]
    replies: tuple[str, ...]


PERSON_RELATIONS = (
    Relation(
        "birthplace",
        BORN,
        ("Where was {person} born?", "In which town was {person} born?"),
        ("In {birthplace}.", "{surname} was born in {birthplace}."),
    ),
    Relation(
        "birth_year",
        BORN,
        ("When was {person} born?", "In which year was {person} born?"),
        ("In {birth_year}.", "{surname} was born in {birth_year}."),
    ),
    Relation(
        "employer",
        WORKED,
        ("Which firm did {person} work for?", "Who employed {person}?"),
        ("{employer}.", "{surname} worked for {employer}."),
    ),
    Relation(
        "job",
        WORKED,
        ("What did {person} work as?", "What was the work of {person}?"),
        ("As a {job}.", "{surname} worked as a {job}."),
    ),
    Relation(
        "home",
        MOVED,
        ("Where did {person} move to?", "To which town did {person} move?"),
        ("To {home}.", "{surname} moved to {home}."),
    ),
    Relation(
        "move_year",
        MOVED,
        ("When did {person} move?", "In which year did {person} move to {home}?"),
        ("In {move_year}.", "{surname} moved in {move_year}."),
    ),
    Relation(
        "spouse",
        MARRIED,
        ("Who did {person} marry?", "Whom did {person} marry?"),
        ("{spouse}.", "{surname} married {spouse}."),
    ),
)
FIRM_RELATIONS = (
    Relation(
        "founder",
        FOUNDED,
        ("Who founded {firm}?", "By whom was {firm} founded?"),
        ("{founder}.", "{firm} was founded by {founder}."),
    ),
    Relation(
        "founding_year",
        FOUNDED,
        ("When was {firm} founded?", "In which year was {firm} founded?"),
        ("In {founding_year}.", "{firm} was founded in {founding_year}."),
    ),
    Relation(
        "town",
        SEATED,
        ("Where is {firm} based?", "In which town is {firm} based?"),
        ("In {town}.", "{firm} is based in {town}."),
    ),
    Relation(
        "main_product",
        MADE,
        ("What does {firm} make?", "What is {firm} known for?"),
        ("{main_product}.", "{firm} makes {main_product}."),
    ),
    Relation(
        "head",
        HEADED,
        ("Who leads {firm}?", "Who runs {firm} today?"),
        ("{head}.", "{firm} is led by {head}."),
    ),
    Relation(
        "rival",
        RIVAL,
        ("Which firm is the rival of {firm}?", "Who is the rival of {firm}?"),
        ("{rival}.", "The rival is {rival}."),
    ),
)
