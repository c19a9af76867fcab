"""Fine-tune a pruned model with the unpruned one as teacher."""
