import * as z from 'zod';

/** What a reader can rely on; the rest is the OpenAPI Specification's own affair. */
export const openApiSchema = z
  .looseObject({
    openapi: z.literal('3.1.1'),
    info: z.looseObject({ title: z.string(), version: z.string() }),
    paths: z.record(z.string(), z.looseObject({})),
    components: z.looseObject({}),
  })
  .meta({ description: 'An OpenAPI 3.1 document: this one.' });

export function exampleOpenApi(title: string): z.infer<typeof openApiSchema> {
  return { openapi: '3.1.1', info: { title, version: '1.0.0' }, paths: {}, components: {} };
}
