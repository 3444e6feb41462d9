import type { Request } from 'express';
import type * as z from 'zod';
import { Problem } from './problem.js';

/** The query by its schema, or the 400 that names the parameter. Repeated and unknown ones are refused. */
export function parseQuery<T>(schema: z.ZodType<T>, req: Request): T {
  for (const [name, value] of Object.entries(req.query)) {
    // No text in the database can have it, so none can be asked for.
    if ([value].flat().some((one) => typeof one === 'string' && one.includes('\u0000'))) {
      throw new Problem(
        'invalid_query',
        `The parameter ${quoted(name)} is refused: it has the character U+0000.`,
      );
    }
  }
  const result = schema.safeParse({ ...req.query });
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  if (issue?.code === 'unrecognized_keys') {
    throw new Problem('invalid_query', `The parameter ${quoted(issue.keys[0])} is not known here.`);
  }
  throw new Problem(
    'invalid_query',
    `The parameter ${quoted(issue?.path[0])} is refused: ${issue?.message ?? 'it is not valid'}.`,
  );
}

/** A name that somebody else chose must not fill the answer. */
function quoted(name: PropertyKey | undefined): string {
  return `"${String(name ?? '').slice(0, 64)}"`;
}
