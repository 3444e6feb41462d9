import * as z from 'zod';

// The page's policy forbids `eval`, which zod would try for each schema.
z.config({ jitless: true });
