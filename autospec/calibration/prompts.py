def rehearsal_prompts():
    return [
        "Write a Python function that sorts a list of numbers.",
        "Explain how rain forms.",
        "Write a short story about a fox and a lighthouse keeper.",
        "List five uses of a paper clip.",
        "What is the capital of France, and what is it known for?",
        "Write a SQL query that counts orders by customer.",
        "Describe how to bake bread step by step.",
        "Summarise why the sky is blue.",
        "Write a polite e-mail that asks for a refund.",
        "Explain recursion to a child.",
    ]
