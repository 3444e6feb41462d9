import * as z from 'zod';

/** The members that clients may rely on. The OpenAPI Specification defines the rest. */
export const openApiSchema = z
  .looseObject({
    openapi: z.literal('3.1.1'),
    info: z.looseObject({ title: z.string(), version: z.string() }),
    paths: z.record(z.string(), z.looseObject({})),
    components: z.looseObject({}),
  })
  .meta({ description: 'This OpenAPI 3.1 document.' });

export function exampleOpenApi(title: string): z.infer<typeof openApiSchema> {
  return { openapi: '3.1.1', info: { title, version: '1.0.0' }, paths: {}, components: {} };
}
