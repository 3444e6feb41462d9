import { executeAt, isDenied, type ItemSource } from '../service/items.js';

/**
 * Stands in a template for what makes a body one of its own. No other part of a body has it: neither a
 * tenant's id nor an action may.
 */
export const MARK = '@';

/** How many shapes of bodies take turns. */
const SHAPES = 224;

/**
 * Execute bodies that are admitted, each with `MARK` where `bodyAt` puts what is its own. wrk fills
 * them in (`wrk-executes.lua`), so that making bodies costs it next to nothing.
 */
export function bodyTemplates({ tenantId }: Pick<ItemSource, 'tenantId'>): string[] {
  return Array.from({ length: SHAPES }, (_, n) => n)
    .filter((n) => !isDenied(n))
    .map((n) => JSON.stringify(executeAt({ tenantId, run: MARK }, n)));
}

/** The `n`th body of a run, from 0; the same that wrk sends. */
export function bodyAt(templates: readonly string[], run: string, n: number): string {
  const template = templates[n % templates.length];
  if (template === undefined) throw new Error('there are no bodies');
  return template.replaceAll(MARK, `${run}.${String(n)}`);
}
