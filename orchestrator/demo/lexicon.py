"""The words of the generated world: eight trades with their own vocabulary, and the parts that names are made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Trade:
    """A trade and the words that belong to it; they occur together in documents, which pretraining can learn."""

    name: str
    firm_noun: str
    workers: tuple[str, ...]  # singular; the plural adds s
    products: tuple[str, ...]  # plural
    materials: tuple[str, ...]
    tools: tuple[str, ...]
    rooms: tuple[str, ...]
    acts: tuple[str, ...]  # past tense, take a product
    skills: tuple[str, ...]  # gerunds with their object
    good_news: tuple[str, ...]  # clauses
    bad_news: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


TRADES = (
    Trade(
        "shipbuilding",
        "shipyard",
        _words("shipwright, rigger, caulker, sailmaker"),
        _words("schooners, barges, ferries, trawlers, rowing boats, tugs"),
        _words("oak planks, tar, hemp, canvas, pitch, brass fittings"),
        _words("broadaxe, mallet, capstan, winch, plumb line"),
        _words("slipway, dry dock, rope loft, mast shed"),
        _words("launched, rigged, caulked, fitted out"),
        _words("bending planks, splicing rope, sewing sails, sealing hulls"),
        _words("two hulls left the slipway, the harbour ordered a new ferry, the sea trials went smoothly"),
        _words("a storm tore the moorings, rot was found in the keel, the dry dock flooded"),
    ),
    Trade(
        "baking",
        "bakery",
        _words("baker, miller, confectioner, dough mixer"),
        _words("loaves, rolls, pies, biscuits, tarts, honey cakes"),
        _words("rye flour, yeast, butter, sugar, almonds, cinnamon"),
        _words("rolling pin, sieve, whisk, peel, cake tin"),
        _words("oven room, flour store, cake shop, pantry"),
        _words("baked, iced, glazed, kneaded"),
        _words("kneading dough, proving yeast, icing cakes, sifting flour"),
        _words("the queue for bread grew longer, the honey cakes sold out, the new oven heated evenly"),
        _words("the flour went mouldy, the oven cracked, mice got into the pantry"),
    ),
    Trade(
        "weaving",
        "mill",
        _words("weaver, spinner, dyer, seamstress"),
        _words("blankets, shawls, carpets, curtains, scarves, tapestries"),
        _words("wool, linen thread, silk, cotton yarn, indigo, flax"),
        _words("loom, shuttle, spindle, bobbin, needle"),
        _words("loom hall, dye house, spinning room, wool loft"),
        _words("wove, dyed, embroidered, stitched"),
        _words("spinning yarn, dyeing cloth, carding wool, mending looms"),
        _words("the new looms ran day and night, the shawls came into fashion, wool was cheap again"),
        _words("moths ruined the wool, the looms stood still, the dye washed out of the cloth"),
    ),
    Trade(
        "mining",
        "colliery",
        _words("miner, pitman, blaster, surveyor"),
        _words("copper bars, coal sacks, tin ingots, iron blocks, zinc plates, slate slabs"),
        _words("ore, coal, gravel, blasting powder, quartz, limestone"),
        _words("pickaxe, drill, lantern, mine cart, shovel"),
        _words("shaft, tunnel, smelter, pithead"),
        _words("dug out, smelted, hauled up, crushed"),
        _words("sinking shafts, sorting ore, propping tunnels, reading seams"),
        _words("a rich seam was struck, the smelter was lit again, the deep shaft stayed dry"),
        _words("the tunnel caved in, gas filled the shaft, the seam ran out"),
    ),
    Trade(
        "printing",
        "press",
        _words("printer, typesetter, bookbinder, lithographer"),
        _words("almanacs, newspapers, hymn books, maps, posters, atlases"),
        _words("ink, paper, lead type, leather, glue, vellum"),
        _words("hand press, composing stick, hand roller, folding machine, copper plate"),
        _words("type room, bindery, paper store, proof desk"),
        _words("printed, bound, engraved, published"),
        _words("setting type, binding books, reading proofs, cutting plates"),
        _words("the almanac needed a second edition, schools ordered atlases, the bindery worked two shifts"),
        _words("the proofs were full of errors, ink froze in the rollers, damp spoiled the paper"),
    ),
    Trade(
        "medicine",
        "clinic",
        _words("surgeon, nurse, matron, chemist"),
        _words("ointments, pills, bandages, tonics, vaccines, syrups"),
        _words("gauze, iodine, herbs, alcohol, quinine, camphor"),
        _words("stethoscope, scalpel, syringe, thermometer, microscope"),
        _words("ward, operating room, dispensary, laboratory"),
        _words("prescribed, mixed, tested, handed out"),
        _words("dressing wounds, treating fevers, setting bones, delivering babies"),
        _words("the fever patients recovered, the new ward opened, the vaccine proved safe"),
        _words("an epidemic filled the wards, the medicine ran short, two nurses fell ill"),
    ),
    Trade(
        "music",
        "theatre",
        _words("violinist, pianist, singer, conductor"),
        _words("symphonies, operas, songs, waltzes, concerts, ballads"),
        _words("sheet music, melodies, rhythms, chords, verses, harmonies"),
        _words("violin, piano, flute, trumpet, cello"),
        _words("concert hall, rehearsal room, opera stage, orchestra pit"),
        _words("performed, composed, rehearsed, conducted"),
        _words("tuning pianos, training choirs, writing melodies, playing duets"),
        _words("the audience stood and cheered, every concert was full, the choir won a prize"),
        _words("the tenor lost his voice, the piano was out of tune, the audience left before the finale"),
    ),
    Trade(
        "farming",
        "farmstead",
        _words("farmer, shepherd, dairymaid, ploughman"),
        _words("cheeses, apples, turnips, lambs, eggs, pumpkins"),
        _words("hay, manure, barley seed, milk, clover, straw"),
        _words("plough, scythe, pitchfork, milking stool, harrow"),
        _words("barn, orchard, cow shed, meadow"),
        _words("grew, harvested, raised, picked"),
        _words("ploughing fields, milking cows, shearing sheep, pruning trees"),
        _words("the harvest filled the barns, the cows gave more milk, rain came at the right time"),
        _words("hail flattened the barley, the sheep caught foot rot, drought dried up the meadows"),
    ),
)

# Two groups of countries with names of their own: what is labeled for training can leave out one group's names.
COUNTRIES = (("Velmora", "Tarnia"), ("Oskavia", "Lindara"))
MALE_NAMES = (
    _words("Arthur, Edwin, Hugh, Jasper, Lewis, Martin, Oliver, Ralph, Simon, Walter, George, Felix"),
    _words("Anton, Emil, Igor, Josef, Karel, Lukas, Milan, Pavel, Stefan, Viktor, Bruno, Oskar"),
)
FEMALE_NAMES = (
    _words("Agnes, Clara, Edith, Florence, Harriet, Ivy, Julia, Lucy, Mabel, Rose, Alice, Grace"),
    _words("Anna, Dora, Elena, Hanna, Irena, Klara, Lida, Marta, Olga, Petra, Vera, Zora"),
)
NAME_STARTS = (
    _words("har, bren, cal, tor, wes, mar, hol, ald, pen, ros, kel, dun, fen, gar"),
    _words("lin, sel, thorn, ver, win, ash, bor, dra, kov, mor, nev, rad, sto, zel"),
)
# Surnames, towns and firms share endings, so that a name's kind shows in its surroundings, not its spelling.
NAME_ENDS = _words("wick, low, ton, by, ley, ford, mere, stead, den, ham, well, ridge, gate, more")
RIVERS = (_words("Isk, Arrow, Thame, Elder"), _words("Drava, Mirna, Sava, Orla"))
FIRM_ENDINGS = _words("& Sons, Company, Works, Brothers, Group, Union, Partners, House")
SETTINGS = _words(
    "on the coast, in the hills, at the edge of the moor, in a deep valley, near the border, beside a forest"
)
