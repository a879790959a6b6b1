"""A small generated world behind `orchestrator demo`: its text, its labeled tasks, and sentences to try a model on.

    lexicon         words of eight trades, parts of names
    world           towns, people, firms and the facts between them
    phrasing        sentences from templates that remember where each fact went
    sentences       what can be said, and the questions that ask for it
    documents       lives, histories, guides, news, letters, schoolbook pages
    labeled_tasks   kinds of things (classification), names (NER), questions (question answering)
    demo_data       all of it as files
    prompts         sentences for fill-mask and next-sentence
    tour            the demo's run, its results and what to do next
    picture         its results as a picture

Everything is generated, and a pure function of the seed.
"""
