# SPDX-License-Identifier: Apache-2.0
"""Chat prompts for the embedded drafter's corpus: templates times topics, all written for this project.

Three disjoint sets come out: `train`, `heldout_topics` (same templates, topics never trained on) and
`heldout_free` (whole questions written one by one, no template of the training set). A fourth kind, prompts that the
target writes itself, is sampled by `drafter_corpus.py`.
"""

from __future__ import annotations

import random

# Things one can explain, list facts about, or ask questions about.
SUBJECTS = """photosynthesis; gravity; the water cycle; volcanoes; earthquakes; the moon; black holes; the solar
system; electricity; magnets; the human heart; the brain; sleep; dreams; vaccines; antibiotics; the immune system;
digestion; DNA; evolution; dinosaurs; whales; octopuses; bees; ants; butterflies; penguins; elephants; wolves; cats;
dogs; horses; owls; sharks; coral reefs; rainforests; deserts; glaciers; the ocean; tides; clouds; thunderstorms;
tornadoes; snow; seasons; climate change; recycling; plastic; solar panels; wind turbines; nuclear power; batteries;
electric cars; trains; airplanes; rockets; satellites; the International Space Station; telescopes; microscopes;
cameras; computers; the Internet; email; search engines; social media; smartphones; robots; artificial intelligence;
machine learning; neural networks; encryption; passwords; databases; operating systems; programming languages; open
source software; algorithms; recursion; binary numbers; prime numbers; fractions; percentages; probability;
statistics; geometry; algebra; calculus; the Pythagorean theorem; pi; money; inflation; taxes; banks; interest rates;
the stock market; budgeting; insurance; supply and demand; democracy; elections; constitutions; the United Nations;
human rights; the Roman Empire; ancient Egypt; ancient Greece; the Middle Ages; the Renaissance; the Industrial
Revolution; World War I; World War II; the Cold War; the French Revolution; the American Civil War; the Silk Road; the
Great Wall of China; the Eiffel Tower; the pyramids; Stonehenge; Venice; Paris; London; Tokyo; New York City;
Australia; Brazil; India; Japan; Canada; Africa; Antarctica; Mount Everest; the Amazon River; the Sahara; Shakespeare;
poetry; novels; fairy tales; myths; jazz; classical music; the piano; the guitar; the violin; painting; sculpture;
photography; movies; theater; dance; football; basketball; tennis; swimming; running; yoga; chess; hiking; camping;
fishing; gardening; cooking; baking; bread; cheese; coffee; tea; chocolate; sugar; salt; vitamins; protein; a balanced
diet; exercise; stress; meditation; friendship; kindness; honesty; leadership; teamwork; time management; public
speaking; negotiation; creativity; critical thinking; memory; learning a language; reading; writing; handwriting;
libraries; museums; schools; universities; homework; teachers; doctors; nurses; firefighters; farmers; engineers;
architects; lawyers; scientists; journalists; bridges; skyscrapers; lighthouses; clocks; calendars; maps; compasses;
bicycles; boats; submarines; glass; paper; steel; gold; diamonds; rocks; soil; trees; flowers; mushrooms; seeds;
fruit; vegetables; rice; wheat; corn; milk; eggs; honey; soap; perfume; clothing; shoes; cotton; silk; toys; video
games; puzzles; holidays; birthdays; weddings; festivals; light; sound; color; heat; energy; atoms; molecules; water;
air; fire; acids; metals; crystals; time; space; stars; comets; Mars; Jupiter; blood; bones; muscles; skin; eyes;
ears; teeth; lungs; bacteria; viruses; cells; genes; hormones; allergies; pollution; water treatment; compost;
forests; rivers; lakes; islands; mountains; caves; beaches; fossils; oil; coal; hydrogen; 3D printing; drones; virtual
reality; blockchain; cloud computing; cybersecurity; version control; unit tests; web browsers; spreadsheets; typing;
the alphabet; grammar; proverbs; humor; philosophy; ethics; psychology; sociology; economics; geography; astronomy;
chemistry; biology; physics; mathematics"""

# Who or what a story, poem or dialogue is about.
CHARACTERS = """a brave little mouse; a lonely robot; an old fisherman; a young girl who loves the stars; a boy and
his dog; a dragon who is afraid of fire; a talking tree; a clever fox; a lost kitten; a retired detective; a baker in
a small village; two sisters; a time traveler; a shy wizard; a pirate captain; a knight who hates fighting; a queen
with a secret; a clockmaker; a farmer and a magic seed; an astronaut on Mars; a ghost in a library; a painter who
cannot see colors; a musician on the street; a teacher on her first day; a nurse at night; a taxi driver; a mountain
climber; a snowman; a curious owl; a family moving to a new city; a forgotten toy; a river that speaks; a girl who can
talk to animals; a boy who finds a map; an inventor; a spy; a chef who loses her sense of taste; a grandmother and her
garden; a soldier coming home; a scientist who discovers a new planet; a cat who wants to be a king; a bear who cannot
sleep; a sailor in a storm; a princess who builds machines; a thief with a good heart; a student who is always late; a
train that never stops; a mysterious letter; an abandoned house; a golden key; a haunted forest; a friendly monster; a
mirror; a red balloon; a broken violin; an island; a winter night; the last day of summer; a birthday surprise; a
strange door; a wise turtle; a rainy day; a circus; a lost treasure; a small spaceship; a village by the sea; a stray
dog; an unlikely friendship; a bookshop owner"""

# Things one does: "how do I ...", "steps to ...", "tips for ...".
ACTIONS = """learn to play the guitar; bake bread; make a cup of coffee; grow tomatoes; train a puppy; save money;
prepare for a job interview; write a resume; study for an exam; fall asleep faster; lose weight; start running; learn
a new language; clean a kitchen; fix a flat tire; change a light bulb; paint a room; plan a trip; pack a suitcase;
build a website; learn to program; write a novel; write a poem; give a speech; make new friends; apologize to a
friend; deal with stress; stop procrastinating; wake up early; read more books; organize a desk; take better photos;
draw a face; cook rice; boil an egg; make pancakes; make pasta; make a salad; bake a chocolate cake; make soup; make
lemonade; plant a tree; care for houseplants; start a garden; compost; recycle at home; save water; save energy; start
a small business; sell things online; write an email to a boss; ask for a raise; choose a laptop; protect a password;
back up files; set up a home network; speed up a computer; clean a keyboard; learn chess; solve a Rubik's cube; ride a
bicycle; swim; do yoga; meditate; stretch after exercise; build muscle; eat healthier; drink more water; quit smoking;
treat a cold; treat a sunburn; stop a nosebleed; bandage a cut; remove a stain; wash wool clothes; iron a shirt; tie a
tie; sew a button; knit a scarf; fold a paper airplane; wrap a gift; plan a birthday party; host a dinner; choose a
gift; train for a marathon; climb a mountain; set up a tent; build a campfire; read a map; drive in snow; buy a used
car; rent an apartment; move to a new city; make a budget; pay off debt; invest money; teach a child to read; help
with homework; entertain a toddler; manage a team; run a meeting; give feedback; resolve a conflict; improve memory;
take notes; write an essay; cite sources"""

# Small programs.
PROGRAMS = """reverses a string; checks whether a number is prime; computes the factorial of a number; returns the nth
Fibonacci number; sorts a list of numbers; finds the largest number in a list; counts the words in a text; counts the
vowels in a string; checks whether a string is a palindrome; removes duplicates from a list; merges two sorted lists;
finds the sum of all even numbers in a list; converts Celsius to Fahrenheit; computes the average of a list; reads a
file line by line; writes a list to a file; counts how often each word occurs; finds the common elements of two lists;
flattens a nested list; implements binary search; implements bubble sort; implements a stack; implements a queue;
implements a linked list; computes the greatest common divisor; checks whether two strings are anagrams; capitalizes
each word; generates a random password; rolls two dice; prints a multiplication table; prints the numbers from 1 to
100; plays rock, paper, scissors; guesses a number; converts a number to binary; computes the area of a circle; checks
whether a year is a leap year; finds the second largest number; rotates a list; transposes a matrix; multiplies two
matrices; parses a date; validates an email address; downloads a web page; parses JSON; connects to a database; draws
a triangle of stars; computes compound interest; splits a string by commas; groups words by their first letter; finds
the longest word in a sentence"""

LANGUAGES = ["Python", "Python", "Python", "Python", "JavaScript", "Java", "C", "C++", "Rust", "Go"]

DISHES = """chocolate chip cookies; banana bread; vegetable soup; tomato pasta; chicken curry; fried rice; pancakes;
apple pie; a green salad; lentil soup; pizza; tacos; mushroom risotto; roasted vegetables; a fruit smoothie; oatmeal;
scrambled eggs; an omelette; mashed potatoes; hummus; guacamole; garlic bread; cheesecake; brownies; lemon cake; a
vegetable stir-fry; beef stew; fish and chips; a cheese sandwich; onion soup; rice pudding; blueberry muffins;
waffles; potato salad; chili"""

EMAILS = """to my boss asking for a day off; to a customer apologizing for a late delivery; inviting colleagues to a
meeting; thanking a teacher; to a landlord about a broken heater; applying for a job as a data analyst; declining an
invitation; to a friend about a trip; asking for a refund; announcing a new product; to a professor asking for an
extension; congratulating a coworker; introducing myself to a new team; reminding a client about an invoice; to a
neighbor about noise; asking for feedback on a report; to a hotel asking about a reservation; resigning from a job;
welcoming a new employee; rescheduling an appointment; to a company asking for sponsorship; to parents about a school
event; asking a mentor for advice; cancelling a subscription; following up after an interview"""

# Short passages to summarise or rewrite, in our own words.
PASSAGES = """The town library opened its doors again on Monday after six months of repairs. The roof had leaked for
years, and many books were lost. Volunteers dried, cleaned and sorted more than four thousand volumes.; A new study of
city trees found that streets with tall trees are up to three degrees cooler in summer. The effect is strongest in the
afternoon, and it depends more on the size of the trees than on their number.; The company said on Friday that it will
close its oldest factory next year. About two hundred workers will be offered jobs at a plant nearby. The mayor called
the decision a hard blow for the region.; Bees visit many flowers in one trip. They carry pollen from one plant to
another, which lets fruit grow. Without bees, farmers would harvest far fewer apples, almonds and berries.; The ferry
between the two islands was cancelled for the third day because of high waves. Visitors slept in the school gym, and
local families brought soup and blankets.; In the first half our team looked tired and lost the ball too often. After
the break the coach brought on two young players, and both of them scored.; Glass is made by melting sand with soda
and lime. While it is hot it can be blown, pressed or rolled. It cools slowly in a special oven so that it does not
crack.; Many people wake up in the night and look at their phone. Doctors advise against it, because bright light
tells the brain that it is morning.; The museum bought a small painting that had hung in a kitchen for fifty years.
Experts believe that it was painted around 1650 by a student of a famous master.; The school started a garden two
years ago. Today the children grow beans, carrots and pumpkins, and they sell what they do not eat at the Saturday
market.; The river rose by two meters after a week of rain. Three roads were closed, and the fire department filled
sandbags all night long.; Electric buses are quiet and clean, but they cost more than diesel buses. The city hopes to
save money on fuel and repairs over ten years.; A small robot now delivers parcels in the old town. It moves at
walking speed, stops for dogs and children, and asks for help when it meets stairs.; Coffee was first grown in the
highlands of Ethiopia. Traders brought it to Yemen, and from there it spread to Cairo, Istanbul and finally to all of
Europe."""

PEOPLE = """Albert Einstein; Marie Curie; Isaac Newton; Charles Darwin; Leonardo da Vinci; Galileo Galilei; Ada
Lovelace; Alan Turing; Nikola Tesla; Thomas Edison; Abraham Lincoln; George Washington; Nelson Mandela; Mahatma
Gandhi; Martin Luther King Jr.; Cleopatra; Julius Caesar; Alexander the Great; Napoleon; Queen Victoria; Wolfgang
Amadeus Mozart; Ludwig van Beethoven; Vincent van Gogh; Pablo Picasso; Frida Kahlo; Jane Austen; Charles Dickens; Mark
Twain; Homer; Socrates; Plato; Aristotle"""

COUNTRIES = """France; Germany; Italy; Spain; Portugal; Greece; Egypt; Kenya; Nigeria; South Africa; India; China;
Japan; Thailand; Vietnam; Australia; Canada; Mexico; Brazil; Argentina; Peru; Chile; Norway; Sweden; Poland; Russia;
Turkey; Iran; Ireland; the Netherlands"""

# {x} is filled from the named list. The weight is how often the template is drawn.
TEMPLATES: list[tuple[str, str, int]] = [
    ("SUBJECTS", "What is {x}?", 2),
    ("SUBJECTS", "Explain {x} in simple terms.", 3),
    ("SUBJECTS", "Explain {x} to a five-year-old.", 2),
    ("SUBJECTS", "Tell me about {x}.", 3),
    ("SUBJECTS", "Give me three facts about {x}.", 2),
    ("SUBJECTS", "List five interesting facts about {x}.", 2),
    ("SUBJECTS", "Why is {x} important?", 2),
    ("SUBJECTS", "How does {x} work?", 2),
    ("SUBJECTS", "What are the main advantages and disadvantages of {x}?", 1),
    ("SUBJECTS", "Write a short paragraph about {x}.", 3),
    ("SUBJECTS", "Describe {x} in two sentences.", 2),
    ("SUBJECTS", "What is the history of {x}?", 1),
    ("SUBJECTS", "Write a poem about {x}.", 2),
    ("SUBJECTS", "Write a haiku about {x}.", 1),
    ("SUBJECTS", "I have to give a talk about {x}. Can you help me with an outline?", 1),
    ("SUBJECTS", "Write three quiz questions about {x} and give the answers.", 1),
    ("SUBJECTS", "Can you explain how {x} affects our daily lives?", 2),
    ("SUBJECTS", "What should every beginner know about {x}?", 2),
    ("SUBJECTS", "What are some common misconceptions about {x}?", 1),
    ("SUBJECTS", "Write a blog post introduction about {x}.", 1),
    ("SUBJECTS", "What is the difference between {x} and {y}?", 2),
    ("SUBJECTS", "Compare {x} and {y}.", 1),
    ("CHARACTERS", "Write a short story about {x}.", 5),
    ("CHARACTERS", "Tell me a story about {x}.", 3),
    ("CHARACTERS", "Write the beginning of a novel about {x}.", 1),
    ("CHARACTERS", "Write a poem about {x}.", 2),
    ("CHARACTERS", "Describe {x} in one paragraph.", 1),
    ("CHARACTERS", "Write a dialogue between {x} and {y}.", 1),
    ("CHARACTERS", "Write a bedtime story about {x}.", 2),
    ("ACTIONS", "How do I {x}?", 4),
    ("ACTIONS", "How can I {x}?", 3),
    ("ACTIONS", "Give me five tips to {x}.", 3),
    ("ACTIONS", "What is the best way to {x}?", 3),
    ("ACTIONS", "Write step-by-step instructions to {x}.", 3),
    ("ACTIONS", "I want to {x}. Where should I start?", 2),
    ("ACTIONS", "What mistakes do people make when they try to {x}?", 1),
    ("PROGRAMS", "Write a {lang} function that {x}.", 6),
    ("PROGRAMS", "Write a {lang} program that {x}.", 4),
    ("PROGRAMS", "Show me how to write {lang} code that {x}, with comments.", 2),
    ("DISHES", "Give me a recipe for {x}.", 3),
    ("DISHES", "How do I make {x}?", 2),
    ("DISHES", "What ingredients do I need for {x}?", 1),
    ("EMAILS", "Write an email {x}.", 3),
    ("EMAILS", "Write a short and polite email {x}.", 2),
    ("PASSAGES", "Summarize this text in one sentence: {x}", 3),
    ("PASSAGES", "Summarize the following text:\n\n{x}", 3),
    ("PASSAGES", "Rewrite this text in simpler words: {x}", 2),
    ("PASSAGES", "{x}\n\nWhat are the main points of this text?", 2),
    ("PEOPLE", "Who was {x}?", 3),
    ("PEOPLE", "Write a short biography of {x}.", 2),
    ("PEOPLE", "What is {x} best known for?", 2),
    ("COUNTRIES", "What is the capital of {x}?", 2),
    ("COUNTRIES", "Tell me about the food of {x}.", 1),
    ("COUNTRIES", "Plan a three-day trip to {x}.", 2),
    ("COUNTRIES", "What should I know before I travel to {x}?", 1),
]

# Raw text without a chat template, to be continued.
OPENINGS = [
    ("SUBJECTS", "The most important thing to know about {x} is", 1),
    ("SUBJECTS", "In this article we look at {x}.", 1),
    ("CHARACTERS", "Once upon a time there was {x}", 1),
    ("PEOPLE", "{x} was born", 1),
    ("COUNTRIES", "The capital of {x} is", 1),
    ("PROGRAMS", "# A Python function that {x}\ndef", 1),
]

# Written one by one and never trained on: what a newcomer might type.
FREE_HELDOUT = [
    "Why is the sky blue?",
    "Explain how a rainbow forms.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "What are the planets of our solar system, in order?",
    "How do airplanes stay in the air?",
    "Write a Python function that returns the number of days between two dates.",
    "Give me a simple recipe for a vegetable lasagna.",
    "Write an email to my team about the new office hours.",
    "What is the difference between a virus and a bacterium?",
    "List ten uses for an old newspaper.",
    "Who wrote Romeo and Juliet, and what is it about?",
    "Explain the idea of compound interest with an example.",
    "What should I pack for a week at the beach?",
    "Write a limerick about a cat that cannot swim.",
    "How can I make my living room look bigger?",
    "What happens when ice melts?",
    "Translate 'good morning, my friend' into French and Spanish.",
    "Write a product description for a wooden desk lamp.",
    "Explain what an API is to someone who has never programmed.",
    "What are three good questions to ask at the end of a job interview?",
    "Write a JavaScript function that shuffles an array.",
    "How many minutes are there in a week? Show your work.",
    "Suggest a name for a small flower shop and explain your choice.",
    "Tell me a fun fact about octopus intelligence.",
    "What is the plot of Cinderella in four sentences?",
    "How does a refrigerator keep food cold?",
    "Write a thank-you note for a birthday gift.",
    "What is the best time of the year to visit Iceland?",
    "Give me a workout plan for beginners without any equipment.",
    "Why do leaves change color in autumn?",
    "Write a conversation between a customer and a waiter.",
    "What are the symptoms of dehydration?",
    "Explain the rules of table tennis.",
    "Write a SQL query that lists the ten newest customers.",
    "How do I politely say no to extra work?",
    "Write a weather report for a rainy Monday in spring.",
    "What does a product manager do?",
    "Name five famous rivers and say where they are.",
    "How do I explain death to a child?",
    "Write a motivational speech for a losing team.",
]

_LISTS = {
    name: [entry.strip().replace("\n", " ") for entry in text.split(";")]
    for name, text in {
        "SUBJECTS": SUBJECTS,
        "CHARACTERS": CHARACTERS,
        "ACTIONS": ACTIONS,
        "PROGRAMS": PROGRAMS,
        "DISHES": DISHES,
        "EMAILS": EMAILS,
        "PASSAGES": PASSAGES,
        "PEOPLE": PEOPLE,
        "COUNTRIES": COUNTRIES,
    }.items()
}


def split_topics(seed: int, heldout_share: float = 0.1) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Divide every list into (train, held out) entries, once and for all by the seed."""
    train: dict[str, list[str]] = {}
    heldout: dict[str, list[str]] = {}
    for name, entries in _LISTS.items():
        shuffled = sorted(set(entries))
        random.Random(f"{seed}/{name}").shuffle(shuffled)
        num_heldout = max(2, round(len(shuffled) * heldout_share))
        heldout[name], train[name] = shuffled[:num_heldout], shuffled[num_heldout:]
    return train, heldout


def compose_prompts(
    topics: dict[str, list[str]], num_prompts: int, seed: int, *, templates: list[tuple[str, str, int]] | None = None
) -> list[str]:
    """Distinct prompts, templates drawn by weight and topics uniformly; fewer than asked when few exist."""
    rng = random.Random(seed)
    templates = TEMPLATES if templates is None else templates
    weights = [weight for _, _, weight in templates]
    prompts: dict[str, None] = {}
    for _ in range(num_prompts * 20):
        if len(prompts) == num_prompts:
            break
        name, text, _ = rng.choices(templates, weights)[0]
        first = rng.choice(topics[name])
        second = rng.choice([entry for entry in topics[name] if entry != first])
        prompts[text.format(x=first, y=second, lang=rng.choice(LANGUAGES))] = None
    return list(prompts)
