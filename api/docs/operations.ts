import * as z from 'zod';
import type { OperationSpec, ResponseSpec, OpenApiDocument } from '../openapi/types.js';
import { PAGE_POLICY, renderDocs, STYLE } from './page.js';
import type { ReaderText } from './operation.js';

interface Documentation {
  spec: Pick<OperationSpec, 'id' | 'path' | 'summary' | 'description'>;
  /** The media type of the text that `textOf` returns. */
  type: string;
  response: ResponseSpec;
  textOf: (document: OpenApiDocument) => string;
  policy?: string;
}

/** Describes only the members that clients may rely on. The OpenAPI Specification defines all other members. */
const openApiSchema = z
  .looseObject({
    openapi: z.literal('3.1.1'),
    info: z.looseObject({ title: z.string(), version: z.string() }),
    paths: z.record(z.string(), z.looseObject({})),
    components: z.looseObject({}),
  })
  .describe('This OpenAPI 3.1 document.');

export function documentation(title: string, text: ReaderText): Documentation[] {
  return [
    {
      spec: {
        id: 'openApi',
        path: '/openapi.json',
        summary: 'Get the OpenAPI document',
        description: '[/docs](/docs) shows this document as a page.',
      },
      type: 'application/json',
      response: {
        description: 'OpenAPI 3.1 document of all operations.',
        content: { 'application/json': openApiSchema },
        example: { openapi: '3.1.1', info: { title, version: '1.0.0' }, paths: {}, components: {} },
      },
      textOf: (openApi) => JSON.stringify(openApi),
    },
    {
      spec: { id: 'docs', path: '/docs', summary: 'Show the documentation page' },
      type: 'text/html',
      response: {
        description: 'The page, which needs no script.',
        content: { 'text/html': 'text' },
      },
      textOf: (openApi) => renderDocs(openApi, text),
      policy: PAGE_POLICY,
    },
    {
      spec: {
        id: 'docsStyle',
        path: '/docs/style.css',
        summary: 'Get the style sheet of the documentation page',
      },
      type: 'text/css',
      response: { description: 'The style sheet.', content: { 'text/css': 'text' } },
      textOf: () => STYLE,
    },
  ];
}
